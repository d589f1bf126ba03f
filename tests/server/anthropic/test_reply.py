"""What Anthropic's clients are answered."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from ggpy.server.anthropic.api import usage
from ggpy.server.anthropic.breakpoints import Keep
from ggpy.server.anthropic.reply import (
    Ending,
    EventWriter,
    Usage,
    content_blocks,
    error_body,
    error_frame,
    message_object,
)
from ggpy.server.anthropic.request import MessageRequest
from ggpy.server.errors import ErrorInfo
from ggpy.server.jobs.generation import Answer
from ggpy.text.tool_calls import CallArguments, CallBegin, CallEnd, Content, Reasoning, ToolCall
from ggpy.text.tool_calls.events import Event


def written(*events: Event, ending: Ending | None = None) -> list[dict[str, Any]]:
    """The data of the events of a stream, each under its own name."""
    writer = EventWriter("msg_1", "tiny")
    data = writer.start(Usage(10, 4)) + b"".join(map(writer.write, events)) \
        + writer.finish(ending or Ending("end_turn"), Usage(10, 4, 0, 7))
    found = []
    for frame in data.removesuffix(b"\n\n").split(b"\n\n"):
        name, line = frame.split(b"\n")
        found.append(json.loads(line.removeprefix(b"data: ")))
        assert name == b"event: " + found[-1]["type"].encode()
    return found


def test_a_stream_tells_thoughts_text_and_calls_in_blocks() -> None:
    """One after the other; thoughts are signed, calls have an input from the start."""
    events = written(Reasoning("Hm"), Reasoning("."), Content("I "), Content("look."), CallBegin(0, "c1", "look"),
                     CallArguments(0, '{"a":'), CallArguments(0, "1}"), CallEnd(0), CallBegin(1, "c2", "see"),
                     CallEnd(1), ending=Ending("tool_use"))
    assert [(event["type"], event.get("index")) for event in events] == [
        ("message_start", None),
        ("content_block_start", 0), *[("content_block_delta", 0)] * 3, ("content_block_stop", 0),
        ("content_block_start", 1), *[("content_block_delta", 1)] * 2, ("content_block_stop", 1),
        ("content_block_start", 2), *[("content_block_delta", 2)] * 2, ("content_block_stop", 2),
        ("content_block_start", 3), ("content_block_stop", 3), ("message_delta", None), ("message_stop", None)]
    assert [event["content_block"] for event in events if "content_block" in event] == [
        {"type": "thinking", "thinking": "", "signature": ""}, {"type": "text", "text": ""},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {}},
        {"type": "tool_use", "id": "c2", "name": "see", "input": {}}]
    assert [event["delta"] for event in events if event["type"] == "content_block_delta"] == [
        {"type": "thinking_delta", "thinking": "Hm"}, {"type": "thinking_delta", "thinking": "."},
        {"type": "signature_delta", "signature": ""},
        {"type": "text_delta", "text": "I "}, {"type": "text_delta", "text": "look."},
        {"type": "input_json_delta", "partial_json": '{"a":'}, {"type": "input_json_delta", "partial_json": "1}"}]


def test_a_stream_begins_with_an_empty_message_and_ends_with_the_reason() -> None:
    """Tokens of the prompt are known from the start."""
    first, *_, delta, last = written(Content("a"), ending=Ending("stop_sequence", "END"))
    assert first["message"] == {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "tiny", "content": [], "stop_reason": None,
        "stop_sequence": None, "usage": {
            "input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}, "output_tokens": 0}}
    assert delta["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert delta["usage"] == {"input_tokens": 6, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 4,
                              "output_tokens": 7}
    assert last == {"type": "message_stop"}


def test_an_answer_without_anything_has_an_empty_block() -> None:
    """Clients look at the first."""
    assert [event["type"] for event in written()] == [
        "message_start", "content_block_start", "content_block_stop", "message_delta", "message_stop"]
    assert content_blocks("", "", []) == [{"type": "text", "text": ""}]


def test_a_whole_answer_has_the_same_blocks() -> None:
    """Arguments that broke off are {}."""
    calls = [ToolCall("c1", "look", '{"a": 1}', True), ToolCall("c2", "see", '{"a"')]
    assert content_blocks("Hm", "So.", calls) == [
        {"type": "thinking", "thinking": "Hm", "signature": ""}, {"type": "text", "text": "So."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}},
        {"type": "tool_use", "id": "c2", "name": "see", "input": {}}]


def test_tokens_that_are_stored_for_later_are_told_apart() -> None:
    """All tokens of the prompt are one of three kinds."""
    told = message_object("m", "tiny", [], Ending("max_tokens"), Usage(10, 4, 5, 3, n_stored_1h=2))["usage"]
    assert told == {"input_tokens": 1, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 4,
                     "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 2},
                     "output_tokens": 3}


def test_errors_have_anthropics_types() -> None:
    """And llama-server's code."""
    told = error_body(ErrorInfo(503, "unavailable_error", "Loading model"))
    assert told["type"] == "error"
    assert told["request_id"].startswith("req_")
    assert told["error"] == {"type": "overloaded_error", "message": "Loading model", "code": 503}
    assert error_body(ErrorInfo(418, "x", "y"))["error"]["type"] == "api_error"
    frame = error_frame(ErrorInfo(500, "server_error", "oh"))
    assert frame.startswith(b'event: error\ndata: {"type":"error","error":{')


@pytest.mark.parametrize(("keeps", "n_cached", "stored"), [
    ((), 0, (0, 0)), (((60, 300.0),), 0, (60, 0)), (((60, 3600.0),), 20, (40, 40)),
    (((30, 3600.0), (60, 300.0)), 20, (40, 10)), (((30, 3600.0), (60, 300.0)), 40, (20, 0)),
    (((100, 3600.0),), 0, (99, 99)), (((30, 3600.0),), 40, (0, 0))])
def test_each_lifetime_has_its_own_tokens(keeps: tuple[Keep, ...], n_cached: int, stored: tuple[int, int]) -> None:
    """Those that were read anew; the longer lifetime comes first. A prompt's last token is never stored."""
    answer = Answer(0, n_prompt=100, n_ctx=200, task=cast(Any, None), n_cached=n_cached)
    wanted = MessageRequest(cast(Any, None), (), is_stream=False, is_warming=False, blocks=())
    found = usage(answer, wanted, keeps, 7)
    assert (found.n_stored, found.n_stored_1h) == stored
    assert found.object()["cache_creation"] == {
        "ephemeral_5m_input_tokens": stored[0] - stored[1], "ephemeral_1h_input_tokens": stored[1]}
