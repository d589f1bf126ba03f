"""Every field of the table is taken and given, but for those that say why not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ggpy.server.openapi_bodies import fields_of
from tests.clients.conftest import KEY
from tests.clients.fields import Section, paths_of, read_table
from tests.server.conftest import Reply, Served

USER = [{"role": "user", "content": "Hi"}]
PARAMETERS = {"type": "object", "properties": {"city": {"enum": ["Rome"]}}, "required": ["city"]}
FUNCTION = {"name": "weather", "description": "of a city", "parameters": PARAMETERS}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
THOUGHT = "<think>\nhm\n</think>\n\nHi"
SHORT: dict[str, Any] = {"n_predict": 2, "ignore_eos": True}
ANTHROPIC: dict[str, Any] = {"model": "tiny", "messages": USER, "max_tokens": 64, "thinking": {
    "type": "enabled", "budget_tokens": 1024}}
ANTHROPIC_TOOLS = [{"name": "weather", "input_schema": PARAMETERS}]
# what the model here cannot do is shown by other tests, on models that can
ELSEWHERE = ("/infill", "/rerank", "/slots/")
# bodies that are right, by path; each with what the model is made to write
BODIES: dict[str, list[tuple[dict[str, Any], str | None]]] = {
    "/completion": [({"prompt": [40, 41], **SHORT, "n_probs": 2}, None), ({"prompt": [40, 41], **SHORT}, None)],
    "/tokenize": [({"content": "Hi", "with_pieces": True}, None)],
    "/detokenize": [({"tokens": [40]}, None)],
    "/apply-template": [({"messages": USER}, None)],
    "/embedding": [({"input": "Hi"}, None), ({"content": "Hi"}, None)],
    "/v1/chat/completions": [
        ({"messages": USER, "max_tokens": 64, "logprobs": True, "top_logprobs": 1}, THOUGHT),
        ({"messages": USER, "max_tokens": 64, "tools": TOOLS}, f"<think>\n\n</think>\n\n{CALL}")],
    "/v1/completions": [({"prompt": "Hi", "max_tokens": 2, "logprobs": 1}, None)],
    "/v1/embeddings": [({"input": "Hi"}, None)],
    "/v1/responses": [({"input": "Hi", "max_output_tokens": 64}, THOUGHT)],
    "/v1/chat/completions/input_tokens": [({"messages": USER}, None)],
    "/v1/responses/input_tokens": [({"input": "Hi"}, None)],
    "/v1/chat/completions/control": [({"id": "x", "action": "reasoning_end"}, None)],
    "/v1/messages": [(ANTHROPIC, THOUGHT),
                     ({**ANTHROPIC, "tools": ANTHROPIC_TOOLS}, f"<think>\nhm\n</think>\n\n{CALL}")],
    "/v1/messages/count_tokens": [({"messages": USER}, None)],
    "/api/generate": [({"model": "tiny", "prompt": "Hi", "logprobs": True, "top_logprobs": 1,
                        "options": {"num_predict": 4}}, None)],
    "/api/chat": [({"model": "tiny", "messages": USER}, THOUGHT),
                  ({"model": "tiny", "messages": USER, "tools": TOOLS}, f"<think>\nhm\n</think>\n\n{CALL}")],
    "/api/show": [({"model": "tiny", "verbose": True}, None), ({"name": "tiny"}, None)],
    "/api/embed": [({"model": "tiny", "input": "Hi"}, None)],
    "/api/embeddings": [({"model": "tiny", "prompt": "Hi"}, None)],
}
STREAMED: dict[str, dict[str, Any]] = {
    "/completion": {"timings_per_token": True, "return_progress": True},
    "/v1/chat/completions": {"stream_options": {"include_usage": True}, "timings_per_token": True},
}
# what is of the wrong type for a field of that kind
WRONG: dict[str, list[Any]] = {**{kind: [{"a": 1}, 7, "text"] for kind in "nibsta"}, "o": ["text"],
                              "x": [{"a": {}}, 7.5, True]}
SECTIONS = [section for section in read_table() if not section.path.startswith(ELSEWHERE)]
NAMES = [f"{section.method} {section.path}" for section in SECTIONS]


@pytest.fixture(params=SECTIONS, ids=NAMES)
def section(request: pytest.FixtureRequest) -> Section:
    found: Section = request.param
    return found


def ask(served: Served, section: Section, body: Any = None) -> Reply:
    return served.ask(section.method, section.path, body, {"Authorization": f"Bearer {KEY}"})


def test_replies_have_every_field(served: Served, section: Section, script: Callable[..., None]) -> None:
    """Of one of the replies at least."""
    seen: set[str] = set()
    for body, text in BODIES.get(section.path, [({}, None)]):
        if text is not None:
            script(text)
        body = {**body, "stream": False} if section.dialect == "Ollama" else body
        reply = ask(served, section, None if section.method == "GET" else body)
        assert reply.status == 200, reply.data
        seen |= set(paths_of(reply.json))
    assert [field for field in section.gives if field not in seen and field not in section.without] == []


def test_streams_have_every_field(served: Served, section: Section, script: Callable[..., None]) -> None:
    """Of one of their events at least."""
    if not section.streams:
        return
    seen: set[str] = set()
    for body, text in BODIES[section.path]:
        if text is not None:
            script(text)
        reply = ask(served, section, {**body, **STREAMED.get(section.path, {}), "stream": True})
        assert reply.status == 200, reply.data
        lines = [line.removeprefix(b"data: ") for line in reply.data.splitlines()]
        events = [Reply(200, {}, line).json for line in lines if line.startswith(b"{")]
        seen |= set(paths_of(events))
    assert [field for field in section.streams if field not in seen and field not in section.without] == []


def test_bodies_are_read_field_by_field(served: Served, section: Section) -> None:
    """A value of the wrong type is an error that names the field; so it is in the OpenAPI document, too."""
    known = fields_of(section.path) or {}
    unread = [name for name in section.takes if name not in section.without and name != "model"
              and not is_read(served, section, name, known[name][0])]
    assert unread == []


def is_read(served: Served, section: Section, name: str, kind: str) -> bool:
    """Whether some value of the wrong type is refused, by a body that is right otherwise."""
    for body, _ in BODIES[section.path]:
        for more in ({}, {"stream": True}, {"logprobs": True, "verbose": True, "stream": False}):
            usual = {field: value for field, value in {**body, **more}.items() if field not in SHORT}
            for value in WRONG[kind]:
                reply = ask(served, section, {"max_tokens": 2, **usual, name: value})
                if 400 <= reply.status < 500 and name.encode() in reply.data:
                    return True
    return False
