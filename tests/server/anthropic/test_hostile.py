"""Whatever a client of Anthropic's API sends, it is answered or told what is wrong, and the server goes on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.server.conftest import Served
from tests.server.test_hostile import VALUES

BODY: dict[str, Any] = {
    "model": "tiny", "max_tokens": 2, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["x"],
    "system": [{"type": "text", "text": "Be", "cache_control": {"type": "ephemeral", "ttl": "1h"}}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": ""},
                                          {"type": "text", "text": "a"},
                                          {"type": "tool_use", "id": "t", "name": "look", "input": {"path": "a"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "r"}]},
            {"type": "document", "title": "T", "source": {"type": "text", "data": "d"}}]}],
    "tools": [{"name": "look", "description": "d", "input_schema": {"type": "object"}}],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": False}, "metadata": {"user_id": "u"},
    "thinking": {"type": "enabled", "budget_tokens": 3}, "output_config": {"effort": "low"},
}
BLOCKS = st.fixed_dictionaries({"type": st.sampled_from(
    ["text", "image", "tool_use", "tool_result", "thinking", "document", "search_result", "redacted_thinking"])})

Path = tuple[Any, ...]


def paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places in a JSON value, all but the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from paths(item, (*path, key))


def replaced(body: Any, path: Path, value: Any) -> Any:
    """`body` with `value` at `path`."""
    found = holder = copy.deepcopy(body)
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from([*paths(BODY)]), value=VALUES | BLOCKS | st.lists(BLOCKS, max_size=2),
       is_stream=st.booleans(), is_counted=st.booleans())
def test_no_value_in_a_message_breaks_the_server(server: Served, path: Path, value: Any, is_stream: bool,
                                                 is_counted: bool) -> None:
    """Wherever it stands."""
    body = replaced(BODY, path, value) | {"stream": is_stream}
    route = "/v1/messages/count_tokens" if is_counted else "/v1/messages"
    reply = server.ask("POST", route, body, {"anthropic-version": "2023-06-01"})
    assert reply.status in (200, 400), reply.data
    assert b"event: error" not in reply.data
    if reply.status == 400:
        assert reply.json["type"] == "error"
        assert reply.error["message"]


def test_what_is_fine_is_answered(server: Served) -> None:
    """The body that is changed above is one."""
    assert server.post("/v1/messages", BODY).json["type"] == "message"


def test_pictures_are_an_error_of_the_server_as_for_llama_server(server: Served) -> None:
    """But of the client for those that would send them again."""
    picture = {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}
    body = replaced(BODY, ("messages", 0, "content"), [picture])
    assert [server.ask("POST", "/v1/messages", body, headers).status
            for headers in ({}, {"anthropic-version": "2023-06-01"})] == [500, 400]
