"""/v1/completions: what goes beyond llama-server's own route."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from tests.server.conftest import Served

PROMPT = "the cat and the "
TOKENS = list(range(40, 60))


def complete(server: Served, **fields: Any) -> Any:
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True, **fields})
    assert reply.status == 200, reply.data
    return reply.json


def stream(server: Served, **fields: Any) -> list[Any]:
    body = {"prompt": PROMPT, "max_tokens": 6, "ignore_eos": True, "stream": True, **fields}
    reply = server.post("/v1/completions", body)
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream"), reply.data
    *events, done = reply.events
    assert done == "[DONE]"
    return events


def refused(server: Served, **fields: Any) -> str:
    reply = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, **fields})
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error"), reply.data
    return str(reply.error["message"])


def test_a_reply_has_all_that_openai_tells(server: Served) -> None:
    """And llama-server's timings."""
    body = complete(server)
    assert body["id"].startswith("cmpl-")
    assert (body["object"], body["model"], body["system_fingerprint"][:1]) == ("text_completion", "tiny", "b")
    [choice] = body["choices"]
    assert (choice["index"], choice["finish_reason"], choice["logprobs"]) == (0, "length", None)
    usage = body["usage"]
    assert usage["completion_tokens"] == body["timings"]["predicted_n"] == 6
    assert usage["total_tokens"] == usage["prompt_tokens"] + 6


def test_a_stream_tells_the_same_text(server: Served) -> None:
    """One id throughout; the last event of a choice has no text, but reason and usage."""
    text = complete(server)["choices"][0]["text"]
    *parts, last = stream(server)
    assert "".join(part["choices"][0]["text"] for part in parts) == text
    assert {part["choices"][0]["finish_reason"] for part in parts} == {None}
    assert len({event["id"] for event in (*parts, last)}) == 1
    assert (last["choices"][0]["text"], last["choices"][0]["finish_reason"]) == ("", "length")
    assert last["usage"]["completion_tokens"] == 6


def test_usage_of_a_stream_is_an_event_of_its_own_when_asked_for(server: Served) -> None:
    """It counts all choices, and no other event has any, so that nobody counts twice."""
    *parts, last = stream(server, prompt=[PROMPT, TOKENS], stream_options={"include_usage": True})
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 12
    assert not any("usage" in part for part in parts)


def test_choices_are_numbered_prompt_by_prompt(server: Served) -> None:
    """A prompt counts once in the usage, however many choices it has."""
    body = complete(server, prompt=[PROMPT, TOKENS], n=2)
    alone = [complete(server, prompt=prompt) for prompt in (PROMPT, TOKENS)]
    first, second = (one["choices"][0]["text"] for one in alone)
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, first), (1, first), (2, second), (3, second)]
    assert body["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert body["usage"]["completion_tokens"] == 24


@pytest.mark.parametrize("prompt", [TOKENS, [*TOKENS, " and"], [TOKENS], [PROMPT, "b"], {"prompt_string": "a"}])
def test_prompts_may_have_every_shape(server: Served, prompt: Any) -> None:
    """Tokens, mixtures, several of either."""
    n_prompts = 2 if prompt == [PROMPT, "b"] else 1
    assert len(complete(server, prompt=prompt)["choices"]) == n_prompts


def test_echo_puts_the_prompt_in_front(server: Served) -> None:
    """As it was sent; in streams too, of every choice."""
    text = complete(server)["choices"][0]["text"]
    assert complete(server, echo=True)["choices"][0]["text"] == PROMPT + text
    events = stream(server, echo=True, n=2)
    for index in (0, 1):
        assert "".join(event["choices"][0]["text"] for event in events
                       if event["choices"][0]["index"] == index) == PROMPT + text


@pytest.mark.parametrize("is_stream", [False, True])
def test_echo_alone_generates_nothing(server: Served, is_stream: bool) -> None:
    """With max_tokens 0."""
    if is_stream:
        events = stream(server, echo=True, max_tokens=0)
        text, usage = "".join(event["choices"][0]["text"] for event in events), events[-1]["usage"]
    else:
        body = complete(server, echo=True, max_tokens=0)
        text, usage = body["choices"][0]["text"], body["usage"]
    assert (text, usage["completion_tokens"]) == (PROMPT, 0)


def test_logprobs_are_arrays_that_fit_the_text(server: Served) -> None:
    """Offsets are where tokens begin, the chosen token is among the alternatives, llama-server's list stands beside."""
    choice = complete(server, prompt=[97, 98, 99], max_tokens=8, logprobs=2, grammar='root ::= "the cat"')["choices"][0]
    found = choice["logprobs"]
    assert choice["text"] == "the cat" == "".join(found["tokens"])
    offsets = [len("".join(found["tokens"][:i])) for i in range(len(found["tokens"]))]
    assert found["text_offset"] == offsets
    for token, logprob, top in zip(found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True):
        assert top[token] == logprob < 0
        assert 2 <= len(top) <= 3
    assert len(found["content"][0]["top_logprobs"]) == 2


def test_logprobs_of_0_are_those_of_the_tokens_alone(server: Served) -> None:
    """The chosen token is the only alternative."""
    found = complete(server, logprobs=0)["choices"][0]["logprobs"]
    assert len(found["tokens"]) == 6
    assert [list(top) for top in found["top_logprobs"]] == [[token] for token in found["tokens"]]


def test_logprobs_of_a_stream_are_those_of_the_whole(server: Served) -> None:
    """Put together from all events."""
    whole = complete(server, echo=True, logprobs=2)["choices"][0]["logprobs"]
    parts = [event["choices"][0]["logprobs"] for event in stream(server, echo=True, logprobs=2)]
    for name in ("tokens", "text_offset", "token_logprobs"):
        assert [value for part in parts if part for value in part[name]] == whole[name]


def test_echo_tells_how_probable_the_prompt_was(server: Served) -> None:
    """What an answer's tokens had is what they have as a prompt; of its first token nothing is known."""
    generated = complete(server, prompt=TOKENS, logprobs=1)["choices"][0]["logprobs"]
    tokens = [one["id"] for one in generated["content"]]
    found = complete(server, prompt=[*TOKENS, *tokens], logprobs=1, echo=True, max_tokens=0)["choices"][0]["logprobs"]
    assert (found["token_logprobs"][0], found["top_logprobs"][0]) == (None, None)
    assert len(found["tokens"]) == 26
    assert found["token_logprobs"][20:] == pytest.approx(generated["token_logprobs"], abs=1e-4)


def test_what_the_vocabulary_puts_in_front_of_a_prompt_is_not_echoed(server: Served) -> None:
    """The first token of the text comes after it, so something is known of it."""
    found = complete(server, prompt="abc", logprobs=1, echo=True, max_tokens=0)["choices"][0]["logprobs"]
    assert (found["tokens"], found["text_offset"]) == (["a", "b", "c"], [0, 1, 2])
    assert found["token_logprobs"][0] < 0


def test_a_part_of_a_character_is_named_by_its_bytes(server: Served) -> None:
    """It begins where the character does."""
    found = complete(server, prompt="aüb", logprobs=1, echo=True, max_tokens=0)["choices"][0]["logprobs"]
    assert found["tokens"] == ["a", "bytes:\\xc3", "bytes:\\xbc", "b"]
    assert found["text_offset"] == [0, 1, 1, 2]


def test_the_best_of_several_answers_are_told(server: Served) -> None:
    """By the mean logarithm of their tokens; all of them were generated, and count."""
    random = {"temperature": 2.0, "seed": 7, "logprobs": 0}
    every = complete(server, n=2, **random)
    means = {choice["text"]: math.fsum(choice["logprobs"]["token_logprobs"]) for choice in every["choices"]}
    assert len(means) == 2
    body = complete(server, n=1, best_of=2, **random)
    assert [choice["text"] for choice in body["choices"]] == [max(means, key=means.__getitem__)]
    assert body["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize(("fields", "said"), [
    ({"prompt": None}, "Field 'prompt': it is missing"),
    ({"prompt": 5}, "Field 'prompt': expected a string"),
    ({"prompt": [99999]}, "Field 'prompt\\[0\\]': token 99999 is not in the vocabulary"),
    ({"n": 2, "best_of": 1}, "Field 'best_of': expected 2 at least"),
    ({"best_of": 2, "stream": True}, "Field 'best_of': a stream cannot tell"),
    ({"logprobs": -1}, "Field 'logprobs'"),
    ({"logprobs": True}, "Field 'logprobs': expected a whole number"),
    ({"echo": "yes"}, "Field 'echo': expected a boolean"),
    ({"suffix": "x"}, "Field 'suffix': Infill is not supported by this model"),
    ({"stream_options": 1}, "Field 'stream_options': expected an object"),
])
def test_what_cannot_be_done_is_told_by_the_field(server: Served, fields: dict[str, Any], said: str) -> None:
    """With a status that clients do not retry."""
    assert re.match(said, refused(server, **fields))


def test_a_prompt_that_is_too_long_is_refused_by_both_sizes(server: Served) -> None:
    """Also where the prompt's own probabilities are asked for."""
    for fields in ({}, {"echo": True, "logprobs": 1}):
        reply = server.post("/v1/completions", {"prompt": [40] * 300, **fields})
        assert (reply.status, reply.error["type"]) == (400, "exceed_context_size_error"), reply.data
