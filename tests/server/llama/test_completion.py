"""/completion of llama-server: fields, replies, streams and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.server.conftest import Served

PROMPT = list(range(40, 60))


def complete(server: Served, **fields: Any) -> Any:
    reply = server.post("/completion", {"prompt": PROMPT, "n_predict": 6, **fields})
    assert reply.status == 200, reply.data
    return reply.json


def test_a_reply_says_what_was_read_and_generated(server: Served) -> None:
    """All tokens but the last, which nobody reads, are in the cache."""
    body = complete(server, return_tokens=True, ignore_eos=True, cache_prompt=False)
    assert len(body["tokens"]) == body["tokens_predicted"] == 6
    assert (body["tokens_evaluated"], body["tokens_cached"]) == (20, 25)
    assert (body["stop"], body["stop_type"], body["truncated"]) == (True, "limit", False)
    assert (body["timings"]["prompt_n"], body["timings"]["cache_n"], body["timings"]["predicted_n"]) == (20, 0, 6)
    assert body["generation_settings"]["n_predict"] == 6
    assert body["model"] == "tiny"


def test_a_stream_brings_the_same_text_and_tokens(server: Served) -> None:
    """The final event has no text and no tokens; nothing follows it."""
    whole = complete(server, return_tokens=True, ignore_eos=True)
    reply = server.post("/completion", {"prompt": PROMPT, "n_predict": 6, "stream": True, "ignore_eos": True})
    *parts, last = reply.events
    assert reply.headers["content-type"] == "text/event-stream"
    assert "".join(part["content"] for part in parts) == whole["content"]
    assert [token for part in parts for token in part["tokens"]] == whole["tokens"]
    assert {part["id_slot"] for part in parts} == {-1}
    assert (last["stop"], last["content"], last["tokens"]) == (True, "", [])
    assert last["tokens_predicted"] == 6


def test_what_was_read_before_is_cached(server: Served) -> None:
    """All of a prompt but its last token; not with cache_prompt false."""
    prompt = list(range(100, 130))
    first = complete(server, prompt=prompt, n_predict=1)
    second = complete(server, prompt=prompt, n_predict=1)
    third = complete(server, prompt=prompt, n_predict=1, cache_prompt=False)
    assert [body["timings"]["cache_n"] for body in (first, second, third)] == [0, 29, 0]


def test_several_prompts_are_an_array(server: Served) -> None:
    """In order, with n answers each."""
    body = complete(server, prompt=[[40, 41], "ab"], n_predict=2, n=2)
    assert [answer["index"] for answer in body] == [0, 1, 2, 3]
    assert len({answer["prompt"] for answer in body}) == 2


def test_several_prompts_stream_by_index(server: Served) -> None:
    """Each has a final event of its own."""
    reply = server.post("/completion", {"prompt": [[40, 41], [42]], "n_predict": 3, "stream": True})
    assert sorted(event["index"] for event in reply.events if event["stop"]) == [0, 1]


def test_a_stop_string_is_named_and_not_part_of_the_text(server: Served) -> None:
    """It may lie anywhere in the text."""
    text = complete(server, n_predict=12, ignore_eos=True)["content"]
    body = complete(server, n_predict=12, ignore_eos=True, stop=[text[3:5]])
    assert (body["stop_type"], body["stopping_word"]) == ("word", text[3:5])
    assert body["content"] == text[: text.index(text[3:5])]


def test_probabilities_are_logarithms_before_sampling(server: Served) -> None:
    """Exactly n_probs alternatives, the most probable first."""
    tokens = complete(server, n_probs=3, ignore_eos=True)["completion_probabilities"]
    assert len(tokens) == 6
    for token in tokens:
        logprobs = [one["logprob"] for one in token["top_logprobs"]]
        assert len(logprobs) == 3
        assert logprobs == sorted(logprobs, reverse=True)
        assert token["logprob"] == logprobs[0]      # the temperature is 0
        assert bytes(token["bytes"]).decode("utf-8", "replace").startswith(token["token"])


def test_probabilities_after_sampling_are_of_what_could_come(server: Served) -> None:
    """With top_k 2 there are two, which add up to 1."""
    body = complete(server, n_probs=5, post_sampling_probs=True, temperature=1, samplers=["top_k"], top_k=2)
    for token in body["completion_probabilities"]:
        assert math.isclose(sum(one["prob"] for one in token["top_probs"]), 1, abs_tol=1e-5)
        assert len(token["top_probs"]) == 2


def test_response_fields_pick_what_is_told(server: Served) -> None:
    """A path hoists what it leads to; what is not there is left out."""
    body = complete(server, response_fields=["content", "generation_settings/n_predict", "nothing/there"])
    assert set(body) == {"content", "generation_settings/n_predict"}
    assert body["generation_settings/n_predict"] == 6


def test_progress_comes_before_the_first_token(make_server: Callable[..., Served]) -> None:
    """The first says what the cache had."""
    server = make_server()
    reply = server.post("/completion", {"prompt": list(range(60, 160)), "n_predict": 1, "stream": True,
                                        "return_progress": True, "timings_per_token": True, "cache_prompt": False})
    progress = [event["prompt_progress"] for event in reply.events if "prompt_progress" in event]
    assert [(one["cache"], one["processed"], one["total"]) for one in progress] == [(0, 0, 100), (0, 100, 100)]
    assert reply.events[0]["timings"]["prompt_n"] == 0


def test_a_grammar_is_kept_to(server: Served) -> None:
    """In GBNF, or as a JSON schema."""
    assert complete(server, n_predict=20, grammar='root ::= "yes" | "no"')["content"] in ("yes", "no")
    schema = {"enum": [7]}
    assert complete(server, n_predict=20, json_schema=schema)["content"].strip() == "7"


def test_a_biased_token_is_chosen_or_never(server: Served) -> None:
    """As pairs, as an object, as a text, and with false for a ban."""
    first = complete(server, return_tokens=True, n_predict=1)["tokens"][0]
    assert complete(server, return_tokens=True, n_predict=1, logit_bias=[[first, False]])["tokens"] != [first]
    assert complete(server, return_tokens=True, n_predict=2, logit_bias={"77": 1000})["tokens"] == [77, 77]
    assert complete(server, n_predict=1, logit_bias={"--7": 1, "-": 1, "\u0663": 1, "-1": 1})["stop"]


def test_seeds_repeat_and_differ(server: Served) -> None:
    """The same seed says the same again."""
    def text(seed: int) -> str:
        found: str = complete(server, n_predict=20, temperature=2, seed=seed, ignore_eos=True)["content"]
        return found

    assert text(1) == text(1) != text(2)


@pytest.mark.parametrize(("fields", "part"), [
    ({}, "Field 'prompt': it is missing"),
    ({"prompt": {"x": 1}}, "Field 'prompt.prompt_string': it is missing"),
    ({"prompt": [1, "a", None]}, "Field 'prompt[2]': expected a token or a string, found null"),
    ({"prompt": [99999]}, "Field 'prompt[0]': token 99999 is not in the vocabulary"),
    ({"prompt": "a", "temperature": "hot"}, "Field 'temperature': expected a number, found a string"),
    ({"prompt": "a", "n_predict": -2}, "Field 'n_predict': Value must be between -1 and"),
    ({"prompt": "a", "n": 3}, "Field 'n': Value must be between 1 and 2"),
    ({"prompt": "a", "stop": [1]}, "Field 'stop': expected a string or an array of strings"),
    ({"prompt": "a", "logit_bias": [[1]]}, "Field 'logit_bias[0]'"),
    ({"prompt": "a", "dry_sequence_breakers": []}, "Field 'dry_sequence_breakers'"),
    ({"prompt": "a", "stream": "yes"}, "Field 'stream': expected a boolean, found a string"),
    ({"prompt": "a", "lora": [{"id": 3}]}, "there is no such adapter"),
    ({"prompt": "a", "grammar": "root ::= ("}, "failed to parse grammar"),
])
def test_a_wrong_field_is_named(server: Served, fields: dict[str, Any], part: str) -> None:
    """Streaming or not, the status is 400 and the body JSON."""
    for stream in ({}, {"stream": True} if "stream" not in fields else {}):
        reply = server.post("/completion", {**fields, **stream})
        assert (reply.status, reply.error["code"], reply.error["type"]) == (400, 400, "invalid_request_error")
        assert part in reply.error["message"]


def test_a_prompt_that_does_not_fit_states_both_sizes(server: Served) -> None:
    """Even one token must be left for the answer."""
    error = server.post("/completion", {"prompt": [50] * 256}).error
    assert error["type"] == "exceed_context_size_error"
    assert (error["n_prompt_tokens"], error["n_ctx"]) == (256, 256)


def test_a_full_context_ends_an_answer(server: Served) -> None:
    """Prompt and answer are as long as the context then."""
    body = complete(server, prompt=[50] * 250, n_predict=-1, ignore_eos=True)
    assert (body["stop_type"], body["truncated"], body["tokens_predicted"]) == ("limit", True, 6)


def test_a_shifted_context_lets_an_answer_go_on(make_server: Callable[..., Served]) -> None:
    """With --context-shift it is as long as was asked for."""
    server = make_server(has_context_shift=True)
    body = complete(server, prompt=[50] * 250, n_predict=20, ignore_eos=True)
    assert (body["tokens_predicted"], body["truncated"]) == (20, True)


def test_an_empty_prompt_is_an_empty_answer(server: Served) -> None:
    """There is nothing to go on from."""
    body = complete(server, prompt=[])
    assert (body["content"], body["stop"], body["tokens_evaluated"]) == ("", True, 0)
