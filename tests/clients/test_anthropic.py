"""The official client of Anthropic's API, streaming and not."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import anthropic
import pytest
from anthropic.types import CacheCreation, MessageParam, ToolParam

from ggpy.engine.messages import Generate, Tokens
from tests.clients.conftest import KEY
from tests.server.conftest import Served

HELLO: list[MessageParam] = [{"role": "user", "content": "Hello"}]
LOOK: ToolParam = {"name": "look", "description": "Lists a folder.", "input_schema": {
    "type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"path": "a b"}}\n</tool_call>'

Script = Callable[..., None]


def ask(client: anthropic.Anthropic, **fields: Any) -> anthropic.types.Message:
    message: anthropic.types.Message = client.messages.create(
        **{"model": "tiny", "max_tokens": 200, "messages": HELLO, **fields})
    return message


def streamed(client: anthropic.Anthropic, **fields: Any) -> tuple[anthropic.types.Message, list[Any]]:
    """The final message and all events."""
    with client.messages.stream(**{"model": "tiny", "max_tokens": 200, "messages": HELLO, **fields}) as stream:
        events = list(stream)
        return stream.get_final_message(), events


def without_id(message: anthropic.types.Message) -> dict[str, Any]:
    found: dict[str, Any] = message.to_dict()
    for name in ("usage", "stop_details"):
        found.pop(name, None)
    return {**found, "id": "", "content": [{**block, "id": ""} for block in found["content"]]}


def test_a_message_is_answered(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """With tokens and why it ended."""
    script("Hi there.")
    message = ask(anthropic_client, system="Be kind.", metadata={"user_id": "u"})
    assert (message.type, message.role, message.model, message.stop_reason) == (
        "message", "assistant", "tiny", "end_turn")
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Hi there."}]
    assert message.id.startswith("msg_")
    assert message.usage.output_tokens > 0
    assert message.usage.input_tokens > 0


def test_a_stream_ends_as_the_message_that_is_not_streamed(anthropic_client: anthropic.Anthropic,
                                                           script: Script) -> None:
    """Thoughts, text and two calls."""
    text = f"<think>\nHm\n</think>\n\nI look.\n{CALL}\n{CALL}"
    script(text, text)
    whole = ask(anthropic_client, tools=[LOOK])
    message, events = streamed(anthropic_client, tools=[LOOK])
    assert without_id(message) == without_id(whole)
    assert [block.type for block in whole.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole.stop_reason == "tool_use"
    assert whole.content[2].to_dict() | {"id": ""} == {
        "type": "tool_use", "id": "", "name": "look", "input": {"path": "a b"}}
    assert len({block.id for block in whole.content if block.type == "tool_use"}) == 2
    starts = [event.index for event in events if event.type == "content_block_start"]
    stops = [event.index for event in events if event.type == "content_block_stop"]
    assert starts == stops == [0, 1, 2, 3]


def test_results_of_tools_are_sent_back(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """With the blocks of the answer as they came; what was read and written then is in the cache."""
    script(f"<think>\nHm\n</think>\n\n{CALL}", "Two files.")
    first = ask(anthropic_client, tools=[LOOK])
    call = first.content[-1]
    assert call.type == "tool_use"
    second = ask(anthropic_client, tools=[LOOK], messages=[
        *HELLO, {"role": "assistant", "content": first.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "a.txt b.txt"}]}])
    assert second.content[0].to_dict() == {"type": "text", "text": "Two files."}
    assert second.usage.cache_read_input_tokens is not None
    assert second.usage.cache_read_input_tokens >= first.usage.input_tokens + (
        first.usage.cache_read_input_tokens or 0)


def test_an_answer_is_gone_on_with(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """If the last message is the assistant's."""
    script(" four.")
    message = ask(anthropic_client, messages=[*HELLO, {"role": "assistant", "content": "It is"}])
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": " four."}]


@pytest.mark.parametrize("is_stream", [False, True])
def test_why_an_answer_ended_is_told(anthropic_client: anthropic.Anthropic, script: Script, is_stream: bool) -> None:
    """A sequence that stopped it, which is no part of it; the limit; the model's own end."""
    def asked(**fields: Any) -> tuple[Any, ...]:
        script("one two END three")
        message = streamed(anthropic_client, **fields)[0] if is_stream else ask(anthropic_client, **fields)
        (block,) = message.content
        assert block.type == "text"
        return message.stop_reason, message.stop_sequence, block.text

    assert asked(stop_sequences=["x", "END"]) == ("stop_sequence", "END", "one two ")
    assert asked(max_tokens=2)[:2] == ("max_tokens", None)
    assert asked() == ("end_turn", None, "one two END three")


def test_a_tool_may_have_to_be_called(anthropic_client: anthropic.Anthropic) -> None:
    """Any, or one; its input meets the schema even of a model that has no idea."""
    other: ToolParam = {**LOOK, "name": "see", "input_schema": {
        "type": "object", "properties": {"what": {"enum": ["sea", "sky"]}}, "required": ["what"],
        "additionalProperties": False}}
    message = ask(anthropic_client, tools=[LOOK, other], tool_choice={"type": "tool", "name": "see"},
                  thinking={"type": "disabled"})
    (call,) = message.content
    assert call.type == "tool_use"
    assert (call.name, message.stop_reason) == ("see", "tool_use")
    assert call.input in ({"what": "sea"}, {"what": "sky"})
    chosen = ask(anthropic_client, tools=[other], thinking={"type": "disabled"},
                 tool_choice={"type": "any", "disable_parallel_tool_use": True})
    assert [block.type for block in chosen.content] == ["tool_use"]


def test_no_tool_is_called_if_none_may_be(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """What looks like a call is text."""
    script(CALL)
    message = ask(anthropic_client, tools=[LOOK], tool_choice={"type": "none"})
    assert [block.type for block in message.content] == ["text"]


def test_thoughts_have_a_budget(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """The rest of the answer follows."""
    script("<think>\nI think and think and think and think.", "So.")
    message = ask(anthropic_client, max_tokens=300, thinking={"type": "enabled", "budget_tokens": 12})
    thoughts, text = message.content
    assert thoughts.type == "thinking"
    assert "I think and think and think and think.".startswith(thoughts.thinking)
    assert len(thoughts.thinking) < 20
    assert text.to_dict() == {"type": "text", "text": "So."}


def test_an_answer_may_have_to_meet_a_schema(anthropic_client: anthropic.Anthropic) -> None:
    """Of `output_config`."""
    schema = {"type": "object", "properties": {"sky": {"enum": ["blue"]}}, "required": ["sky"],
              "additionalProperties": False}
    message = ask(anthropic_client, output_config={"format": {"type": "json_schema", "schema": schema}},
                  thinking={"type": "disabled"})
    (block,) = message.content
    assert block.type == "text"
    assert json.loads(block.text) == {"sky": "blue"}


def test_tokens_are_counted_as_they_are_read(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """Tools and the system's text are some of them."""
    fields: dict[str, Any] = {"model": "tiny", "messages": HELLO, "tools": [LOOK], "system": "Be kind."}
    counted = anthropic_client.messages.count_tokens(**fields).input_tokens
    assert counted > anthropic_client.messages.count_tokens(model="tiny", messages=HELLO).input_tokens > 0
    script("Hi.")
    usage = ask(anthropic_client, **fields).usage
    assert usage.input_tokens + (usage.cache_read_input_tokens or 0) == counted


def test_a_prompt_is_stored_where_it_says_so(anthropic_client: anthropic.Anthropic, script: Script, served: Served,
                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """And read from the cache the next time; what is neither stands behind it. It is evicted last for an hour."""
    script("a", "b")
    loaded = served.server.models.single.loaded
    assert loaded is not None
    generate, requests = loaded.client.generate, list[Generate]()

    def noted(request: Generate) -> AsyncGenerator[Tokens, None]:
        requests.append(request)
        return generate(request)

    monkeypatch.setattr(loaded.client, "generate", noted)
    system: Any = [{"type": "text", "text": "A long text. " * 20, "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    first, second = (ask(anthropic_client, system=system).usage for _ in range(2))
    assert first.cache_creation_input_tokens
    assert first.cache_creation_input_tokens > 100
    assert first.cache_creation == CacheCreation(
        ephemeral_5m_input_tokens=0, ephemeral_1h_input_tokens=first.cache_creation_input_tokens)
    n_kept = first.cache_creation_input_tokens + (first.cache_read_input_tokens or 0)
    assert [request.keeps for request in requests] == [((n_kept, 3600.0),)] * 2
    assert (second.input_tokens, second.cache_creation_input_tokens) == (1, 0)
    assert second.cache_read_input_tokens == n_kept + first.input_tokens - 1 > n_kept


def test_a_prompt_may_be_read_for_later_alone(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """With `max_tokens` 0."""
    script("Hi.", "Hi.")
    system = "Another long text. " * 20
    first = ask(anthropic_client, system=system, max_tokens=0)
    assert (first.content, first.stop_reason, first.usage.output_tokens) == ([], "max_tokens", 0)
    assert ask(anthropic_client, system=system).usage.input_tokens == 1


@pytest.mark.parametrize(("fields", "words"), [
    ({"messages": [{"role": "user", "content": [{"type": "image", "source": {
        "type": "base64", "media_type": "image/png", "data": "QUJD"}}]}]}, "image input is not supported"),
    ({"messages": [{"role": "user", "content": [{"type": "song"}]}]}, r"messages\[0\]\.content\[0\]\.type"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "no tools of its own"),
    ({"tools": [LOOK], "tool_choice": {"type": "tool", "name": "see"}}, "there is no tool 'see'"),
    ({"thinking": {"type": "loud"}}, r"thinking\.type"), ({"max_tokens": "a"}, "max_tokens"),
    ({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral", "ttl": "9h"}}]},
     r"system\[0\]\.cache_control\.ttl"),
    ({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}] * 5},
     "A maximum of 4 blocks with cache_control may be provided. Found 5"),
    ({"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}],
      "cache_control": {"type": "ephemeral", "ttl": "1h"}}, "a ttl='1h' cache_control block must not come after"),
    ({"messages": [{"role": "user", "content": "word " * 9000}]}, "exceeds the available context size"),
])
def test_bad_requests_are_errors_of_the_client(anthropic_client: anthropic.Anthropic, fields: dict[str, Any],
                                               words: str) -> None:
    """Which is not tried again; streamed or not."""
    for is_stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match=words) as caught:
            ask(anthropic_client, stream=is_stream, **fields)
        assert caught.value.type == "invalid_request_error"


def test_a_wrong_key_is_told_so(base_url: str) -> None:
    """In Anthropic's shape."""
    with anthropic.Anthropic(base_url=base_url, api_key="wrong", max_retries=0) as client, \
            pytest.raises(anthropic.AuthenticationError) as caught:
        ask(client)
    assert caught.value.type == "authentication_error"
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["type"] == "error"
    assert KEY not in str(caught.value)


def test_models_are_listed(anthropic_client: anthropic.Anthropic) -> None:
    """By the route that all dialects share."""
    assert [model.id for model in anthropic_client.models.list()] == ["tiny"]
    assert anthropic_client.models.retrieve("tiny").id == "tiny"


def test_the_beta_of_the_client_works_too(anthropic_client: anthropic.Anthropic, script: Script) -> None:
    """What agents use."""
    script(CALL)
    message = anthropic_client.beta.messages.create(
        model="tiny", max_tokens=200, messages=[{"role": "user", "content": "Hello"}], betas=["any-2026-01-01"],
        tools=[{"name": "look", "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}])
    (call,) = message.content
    assert (call.type, message.stop_reason) == ("tool_use", "tool_use")


async def collected(base_url: str) -> list[str]:
    async with anthropic.AsyncAnthropic(base_url=base_url, api_key=KEY, max_retries=0) as client, \
            client.messages.stream(model="tiny", max_tokens=50, messages=HELLO) as stream:
        return [text async for text in stream.text_stream]


def test_texts_of_a_stream_come_one_by_one(base_url: str, script: Script) -> None:
    """To the asynchronous client."""
    script("Hi there.")
    texts = asyncio.run(collected(base_url))
    assert "".join(texts) == "Hi there."
    assert len(texts) > 1
