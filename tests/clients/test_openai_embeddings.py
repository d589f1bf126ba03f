"""Embeddings through the official OpenAI client."""

from __future__ import annotations

import math

import openai
import pytest


def test_vectors_come_in_the_order_of_their_texts(openai_client: openai.OpenAI) -> None:
    """The client asks for base64 by itself and reads it; vectors have length 1."""
    reply = openai_client.embeddings.create(model="tiny", input=["the cat", "and", "the cat"])
    assert [one.index for one in reply.data] == [0, 1, 2]
    first, second, third = (one.embedding for one in reply.data)
    assert first == pytest.approx(third, abs=1e-6)
    assert first != pytest.approx(second, abs=1e-2)
    assert math.hypot(*first) == pytest.approx(1, abs=1e-5)
    assert reply.usage.prompt_tokens == reply.usage.total_tokens > 3


def test_numbers_are_those_of_base64(openai_client: openai.OpenAI) -> None:
    """Whichever way they are sent."""
    encoded = openai_client.embeddings.create(model="tiny", input="the cat").data[0].embedding
    written = openai_client.embeddings.create(model="tiny", input="the cat", encoding_format="float").data[0].embedding
    assert encoded == pytest.approx(written, abs=1e-6)


def test_a_vector_of_fewer_dimensions_has_length_1_too(openai_client: openai.OpenAI) -> None:
    """Its numbers are the first ones, all larger by the same factor."""
    whole = openai_client.embeddings.create(model="tiny", input="the cat").data[0].embedding
    short = openai_client.embeddings.create(model="tiny", input="the cat", dimensions=5).data[0].embedding
    size = math.hypot(*whole[:5])
    assert short == pytest.approx([value / size for value in whole[:5]], abs=1e-5)


def test_tokens_are_taken_for_texts(openai_client: openai.OpenAI) -> None:
    """One text of tokens, or several; LangChain sends them so."""
    one = openai_client.embeddings.create(model="tiny", input=[40, 41, 42])
    several = openai_client.embeddings.create(model="tiny", input=[[40, 41, 42], [43]])
    assert (len(one.data), len(several.data)) == (1, 2)
    assert one.data[0].embedding == pytest.approx(several.data[0].embedding, abs=1e-6)


@pytest.mark.parametrize(("texts", "said"), [([], "Field 'input': it is an empty array"),
                                             ([[]], "Input content cannot be empty")])
def test_nothing_has_no_vector(openai_client: openai.OpenAI, texts: list[str], said: str) -> None:
    """No text, and one without tokens. An empty string has the token that stands in front of all texts."""
    with pytest.raises(openai.BadRequestError, match=said):
        openai_client.embeddings.create(model="tiny", input=texts)


def test_another_encoding_is_refused(openai_client: openai.OpenAI) -> None:
    """With the two that there are."""
    with pytest.raises(openai.BadRequestError, match="Field 'encoding_format': expected one of float, base64"):
        openai_client.embeddings.create(model="tiny", input="a", extra_body={"encoding_format": "int8"})
