"""What a chat template can write, found by rendering it with small conversations and looking at the text.

The idea is minja's (llama.cpp, vendor/minja/chat-template.hpp).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Takes the messages and tools of a conversation; returns its text, or None if the template fails.
Trial = Callable[[list[dict[str, Any]], list[dict[str, Any]] | None], str | None]

_USER = {"role": "user", "content": "Hi"}
_PARTS = [{"type": "text", "text": "<needle a>"}, {"type": "text", "text": "<needle b>"}]
_TOOL = {"type": "function", "function": {
    "name": "needle_tool", "description": "needle", "parameters": {
        "type": "object", "properties": {"needle": {"type": "string", "description": "needle"}}, "required": ["needle"],
    },
}}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a template can write of a message and around it."""

    string_content: bool = True     # content as a text
    content_parts: bool = False     # content as a list of parts
    system_role: bool = True        # a system message
    tools: bool = False             # a list of tools
    tool_calls: bool = False        # an assistant's calls of tools
    string_arguments: bool = True   # the arguments of a call as JSON text
    object_arguments: bool = False  # the arguments of a call as an object
    needs_content: bool = False     # a content beside the calls, if only an empty text


def probe(trial: Trial) -> Capabilities:
    """Find out what a template can write."""
    # some templates are for conversations with tools alone
    tools = None if trial([_USER], None) is not None else [_TOOL]
    plain = trial([{"role": "user", "content": "<needle>"}], tools) or ""
    parts = trial([{"role": "user", "content": _PARTS}], tools) or ""
    content_parts = all(p["text"] in parts for p in _PARTS) and "'text'" not in parts and '"text"' not in parts
    string_content = "<needle>" in plain or not content_parts

    def content(text: str) -> Any:
        return text if string_content else [{"type": "text", "text": text}]

    user = {"role": "user", "content": content("Hi")}
    system = trial([{"role": "system", "content": content("<needle>")}, user], tools) or ""

    def with_call(arguments: Any, fields: dict[str, Any]) -> str | None:
        call = {"id": "a1b2c3d4e", "type": "function", "function": {"name": "needle_tool", "arguments": arguments}}
        answer = {"role": "tool", "tool_call_id": "a1b2c3d4e", "name": "needle_tool", "content": content("1")}
        return trial([user, {"role": "assistant", **fields, "tool_calls": [call]}, answer], [_TOOL])

    forms: tuple[Any, ...] = ({"needle_key": "needle_value"}, '{"needle_key": "needle_value"}')
    with_content = [with_call(arguments, {"content": content("")}) for arguments in forms]
    without_content = [with_call(arguments, {}) for arguments in forms]
    as_object, as_string = (text or "" for text in with_content)
    return Capabilities(
        string_content=string_content,
        content_parts=content_parts,
        system_role="<needle>" in system or not plain + parts,
        tools="needle" in (trial([user], [_TOOL]) or "").lower(),
        tool_calls="needle_value" in as_object + as_string,
        string_arguments='"needle_key"' in as_string,
        # Python's way of writing a dictionary is no model's
        object_arguments="needle_value" in as_object and "'needle_key'" not in as_object,
        needs_content=any(
            text is not None and (without is None or "None" in without)
            for text, without in zip(with_content, without_content, strict=True)
        ),
    )
