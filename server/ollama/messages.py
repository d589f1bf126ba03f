"""Ollama's messages as the chat core takes them, which is OpenAI's way to write them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.errors import RequestError, shown
from ggpy.server.ollama.options import refuse_images
from ggpy.server.web.fields import Fields, named

Message = dict[str, Any]
Pending = list[tuple[str, str]]     # ids and names of calls that have no result yet

ROLES = ("system", "user", "assistant", "tool")


def read_messages(fields: Fields, model: str) -> list[Message]:
    """The field `messages`. Raises RequestError for what is wrong with one, and for pictures."""
    pending: Pending = []
    return [read_message(message, model, pending, i) for i, message in enumerate(fields.objects("messages"))]


def read_message(message: Fields, model: str, pending: Pending, i: int) -> Message:
    """One message. Results of tools that do not say of which call belong to the first of that name, or at all."""
    refuse_images(message, model)
    role = message.text("role", default="").lower()
    if role not in ROLES:
        raise message.error("role", f"expected one of {', '.join(ROLES)}, found {shown(role)}")
    content = message.get("content")
    if not isinstance(content, str | None):
        raise message.error("content", f"expected a string, found {named(content)}")
    found: Message = {"role": role, "content": content or ""}
    if role == "assistant":
        if reasoning := message.text("thinking"):
            found["reasoning_content"] = reasoning
        calls = [read_call(call, f"call_{i}_{j}") for j, call in enumerate(message.objects("tool_calls"))]
        pending[:] = [(call["id"], call["function"]["name"]) for call in calls]
        if calls:
            found["tool_calls"] = calls
    if role == "tool":
        name = message.text("tool_name", "name", default="")
        call_id = message.text("tool_call_id") or answered(pending, name)
        for call in [call for call in pending if call[0] == call_id]:
            name = name or call[1]
            pending.remove(call)
        found |= {key: value for key, value in (("tool_call_id", call_id), ("name", name)) if value}
    return found


def read_call(call: Fields, usual_id: str) -> Message:
    """A call of a tool that the model wrote earlier."""
    function = call.nested("function")
    name = function.text("name")
    if not name:
        raise function.missing("name")
    arguments = function.get("arguments")
    if not isinstance(arguments, dict | None):
        raise function.error("arguments", f"expected an object, found {named(arguments)}")
    return {"id": call.text("id") or usual_id, "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments or {}, ensure_ascii=False)}}


def answered(pending: Pending, name: str) -> str | None:
    """The id of the call that a result of tool `name` belongs to."""
    return next((known_id for known_id, known in pending if known == name), pending[0][0] if pending else None)


def read_tools(fields: Fields) -> list[Any]:
    """The field `tools`. Raises FieldError."""
    tools = fields.objects("tools")
    for tool in tools:
        if not tool.nested("function").text("name"):
            raise tool.error("function.name", "it is missing")
    return [tool.values for tool in tools]


def shortenings(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Where messages may begin of which the oldest are left out, ever more of them: what is kept begins with the user,
    as templates want it, or is the last alone."""
    others = [i for i, message in enumerate(messages) if message["role"] != "system"]
    return [i for i in others[1:] if messages[i]["role"] == "user" or i == others[-1]]


def kept_from(messages: Sequence[Mapping[str, Any]], start: int) -> list[Mapping[str, Any]]:
    """Those from `start` on, and the systems before."""
    return [message for i, message in enumerate(messages) if message["role"] == "system" or i >= start]


def check_tools(tools: Sequence[Any], *, takes_tools: bool, model: str) -> None:
    """Raise RequestError where the model's template has no tools."""
    if tools and not takes_tools:
        raise RequestError(f'"{model}" does not support tools')
