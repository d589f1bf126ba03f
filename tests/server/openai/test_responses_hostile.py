"""Whatever a client of OpenAI's completions and responses sends, it is answered, and the server goes on."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import Served
from tests.server.test_hostile import VALUES

COMPLETION_FIELDS = ["prompt", "max_tokens", "n", "best_of", "logprobs", "echo", "suffix", "stream", "stream_options",
                     "temperature", "stop", "seed", "logit_bias", "n_probs", "lora", "model", "user"]
RESPONSE_FIELDS = ["input", "instructions", "max_output_tokens", "reasoning", "text", "include", "tools", "tool_choice",
                   "parallel_tool_calls", "top_logprobs", "stream", "store", "metadata", "truncation", "model",
                   "previous_response_id", "conversation", "background", "temperature", "top_p", "stop", "n"]
PART_FIELDS = ["type", "text", "image_url", "refusal"]
ITEM_FIELDS = ["type", "role", "content", "call_id", "name", "arguments", "output", "summary", "encrypted_content"]
TYPES = st.sampled_from(["message", "function_call", "function_call_output", "reasoning", "input_text", "output_text",
                         "input_image", "refusal", "function", "json_schema", "user", "assistant", "system"])


def objects(names: list[str], values: st.SearchStrategy[Any], most: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(st.sampled_from(names), values | TYPES, max_size=most)


PARTS = st.lists(objects(PART_FIELDS, VALUES, 3), max_size=2)
ITEMS = st.lists(objects(ITEM_FIELDS, VALUES | PARTS, 5), max_size=4)
quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def check(server: Served, path: str, body: dict[str, Any]) -> None:
    """A body is answered, or refused with a message; clients would send again what gets a status from 500."""
    reply = server.post(path, body)
    assert reply.status in (200, 400), (body, reply.data)
    if reply.status == 400:
        assert reply.error["message"]
        assert reply.error["type"] in ("invalid_request_error", "exceed_context_size_error")
    elif body.get("stream") is True:
        assert reply.events
    else:
        json.loads(reply.data)


@quick
@given(body=objects(COMPLETION_FIELDS, VALUES, 5))
def test_no_body_of_a_completion_breaks_the_server(server: Served, body: dict[str, Any]) -> None:
    """Nor does it get a status that is the server's fault."""
    check(server, "/v1/completions", {"prompt": [40, 41], "n_predict": 2, **body})


@quick
@given(body=objects(RESPONSE_FIELDS, VALUES | ITEMS, 5))
def test_no_body_of_a_response_breaks_the_server(server: Served, body: dict[str, Any]) -> None:
    """Nor does one of its other paths."""
    body = {"input": "Hi", "n_predict": 2, **body}
    check(server, "/v1/responses", body)
    check(server, "/v1/responses/input_tokens", {**body, "stream": False})


@quick
@given(items=ITEMS)
def test_no_conversation_breaks_the_server(server: Served, items: list[dict[str, Any]]) -> None:
    """Items of every kind, whole and broken."""
    check(server, "/v1/responses", {"input": items, "n_predict": 2})
