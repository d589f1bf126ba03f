"""Completions through the official OpenAI client."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest

from tests.clients.conftest import KEY
from tests.server.conftest import Served


def test_a_completion_is_read_whole(openai_client: openai.OpenAI) -> None:
    """With every field that the client's type has."""
    reply = openai_client.completions.create(model="tiny", prompt="the cat", max_tokens=5, extra_body={
        "ignore_eos": True})
    assert (reply.object, reply.model, reply.choices[0].finish_reason) == ("text_completion", "tiny", "length")
    assert reply.usage is not None
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.completion_tokens == 5
    assert reply.choices[0].text


def test_a_stream_brings_the_same_text(openai_client: openai.OpenAI) -> None:
    """And at its end the usage."""
    whole = openai_client.completions.create(model="tiny", prompt="the cat", max_tokens=9)
    parts = list(openai_client.completions.create(model="tiny", prompt="the cat", max_tokens=9, stream=True,
                                                  stream_options={"include_usage": True}))
    assert "".join(choice.text for part in parts for choice in part.choices) == whole.choices[0].text
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.total_tokens == whole.usage.total_tokens


def test_logprobs_have_the_fields_of_the_client(openai_client: openai.OpenAI) -> None:
    """Of the prompt as well, with echo."""
    reply = openai_client.completions.create(model="tiny", prompt="ab", max_tokens=2, logprobs=2, echo=True,
                                             extra_body={"ignore_eos": True})
    found = reply.choices[0].logprobs
    assert found is not None
    assert found.tokens is not None
    assert found.tokens[:2] == ["a", "b"]
    assert found.text_offset is not None
    assert found.token_logprobs is not None
    assert found.top_logprobs is not None
    assert len(found.tokens) == len(found.text_offset) == len(found.token_logprobs) == len(found.top_logprobs) == 4


def test_a_suffix_asks_for_what_is_between(served: Served, openai_client: openai.OpenAI) -> None:
    """By the model's own tokens for that, as /infill does."""
    def infilled(prefix: str, suffix: str) -> Any:
        reply = served.post("/infill", {"input_prefix": prefix, "input_suffix": suffix, "n_predict": 4},
                            Authorization=f"Bearer {KEY}")
        return reply.json["content"]

    reply = openai_client.completions.create(model="tiny", prompt=["the cat", "an"], suffix=" and", max_tokens=4)
    assert [choice.text for choice in reply.choices] == [infilled("the cat", " and"), infilled("an", " and")]


def test_several_prompts_have_several_choices(openai_client: openai.OpenAI) -> None:
    """Two of each."""
    reply = openai_client.completions.create(model="tiny", prompt=["a", "b"], n=2, best_of=3, max_tokens=2)
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]


def test_a_stream_is_read_asynchronously_too(base_url: str) -> None:
    """And may be left before its end."""
    async def first_text() -> str:
        async with openai.AsyncOpenAI(base_url=f"{base_url}/v1", api_key=KEY, max_retries=0) as client:
            stream = await client.completions.create(model="tiny", prompt="the cat", max_tokens=500, stream=True)
            async for part in stream:
                await stream.close()
                return part.choices[0].text
        return ""

    assert asyncio.run(first_text())


def test_a_wrong_field_is_a_bad_request(openai_client: openai.OpenAI) -> None:
    """The client does not try again, and shows what the server says."""
    with pytest.raises(openai.BadRequestError, match="Field 'best_of': expected 2 at least"):
        openai_client.completions.create(model="tiny", prompt="a", n=2, best_of=1)
