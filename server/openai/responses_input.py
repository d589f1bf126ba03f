"""Reads requests of OpenAI's responses: makes the chat of them that they mean.

A response is made of what the request holds: nothing is stored, so `store` is of no account, and what refers to
something that would be is an error (`previous_response_id`, `conversation`, `item_reference`, `background`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ggpy.errors import shown
from ggpy.server.openai.responses_reasoning import unsealed
from ggpy.server.web.fields import Fields

LOGPROBS = "message.output_text.logprobs"       # what `include` calls the probabilities of the text
# fields that chats do not have, or have otherwise
OWN = frozenset({"input", "instructions", "max_output_tokens", "reasoning", "text", "include", "tools", "top_logprobs",
                 "logprobs", "n", "n_cmpl", "messages", "response_format", "store", "metadata", "truncation", "user",
                 "previous_response_id", "conversation", "background"})
STATEFUL = ("previous_response_id", "conversation", "background")
ROLES = ("user", "system", "developer", "assistant")

logger = logging.getLogger("ggpy")

Message = dict[str, Any]        # as chats have them


def chat_fields(fields: Fields) -> Fields:
    """The body of the chat that a request of /v1/responses means. Raises FieldError."""
    for name in STATEFUL:
        if fields.get(name) not in (None, False, ""):
            raise fields.error(name, "this server stores no responses; send the whole conversation as `input`")
    body = {name: value for name, value in fields.values.items() if name not in OWN}
    body["messages"] = messages(fields)
    body |= {"tools": tools(fields), **answer_format(fields.nested("text"))}
    if (most := fields.integer("max_output_tokens", least=1)) is not None:
        body["max_tokens"] = most
    if (effort := fields.nested("reasoning").text("effort")) is not None:
        body["reasoning_effort"] = effort
    n_top = fields.integer("top_logprobs", default=0, least=0)
    if n_top or LOGPROBS in fields.texts("include"):
        body |= {"logprobs": True, "top_logprobs": n_top}
    return Fields(body)


def messages(fields: Fields) -> list[Message]:
    """What was said so far: the instructions, and the items of the input."""
    found: list[Message] = []
    if instructions := fields.text("instructions"):
        found.append({"role": "system", "content": instructions})
    given = fields.get("input")
    if given is None:
        raise fields.missing("input")
    if isinstance(given, str):
        return [*found, {"role": "user", "content": given}]
    if not isinstance(given, list):
        raise fields.error("input", "expected a string or an array of items")
    for item in fields.objects("input"):
        add_item(found, item)
    return found


def add_item(found: list[Message], item: Fields) -> None:
    """Add `item` to the messages `found`."""
    kind = item.text("type", default="message" if "role" in item else "")
    if kind not in ADDERS:
        expected = ", ".join(ADDERS)
        reason = f"found {shown(kind)}" if kind else "it has neither that nor a role"
        raise item.error("type", f"Cannot determine type of 'item': expected one of {expected}; {reason}")
    ADDERS[kind](found, item)


def add_message(found: list[Message], item: Fields) -> None:
    """What somebody said. Systems that follow the instructions continue them: many templates take only one."""
    role = item.choice("role", ROLES, "")
    content = contents(item, "content")
    if role == "assistant":
        last = assistant(found)
        last["content"] = joined(last.get("content"), content)
    elif role != "user" and len(found) == 1 and found[0]["role"] == "system" and isinstance(content, str) \
            and isinstance(found[0]["content"], str):
        found[0]["content"] += f"\n\n{content}"
    else:
        found.append({"role": role, "content": content})


def add_call(found: list[Message], item: Fields) -> None:
    """A call that the model made."""
    name, call_id = item.text("name"), item.text("call_id", "id")
    if name is None or call_id is None:
        raise item.missing("name" if name is None else "call_id")
    function = {"name": name, "arguments": item.text("arguments", default="{}")}
    calls = assistant(found).setdefault("tool_calls", [])
    calls.append({"id": call_id, "type": "function", "function": function})


def add_output(found: list[Message], item: Fields) -> None:
    """What came of a call."""
    call_id = item.text("call_id")
    if call_id is None:
        raise item.missing("call_id")
    found.append({"role": "tool", "tool_call_id": call_id, "content": contents(item, "output")})


def add_reasoning(found: list[Message], item: Fields) -> None:
    """What the model reasoned. An item without text, such as one that a hosted model has encrypted, adds nothing."""
    text = "".join(part.text("text", default="") for part in item.objects("content"))
    text = text or unsealed(item.text("encrypted_content", default=""))
    if text:
        last = assistant(found)
        last["reasoning_content"] = last.get("reasoning_content", "") + text


ADDERS: dict[str, Callable[[list[Message], Fields], None]] = {
    "message": add_message, "function_call": add_call, "function_call_output": add_output, "reasoning": add_reasoning}


def assistant(found: list[Message]) -> Message:
    """The assistant's message at the end of `found`, which is made if there is none: its items are one message."""
    if not found or found[-1]["role"] != "assistant":
        found.append({"role": "assistant"})
    return found[-1]


def joined(before: Any, content: Any) -> Any:
    """Two contents of one message."""
    if not before:
        return content
    if isinstance(before, str) and isinstance(content, str):
        return before + content
    return [*as_parts(before), *as_parts(content)]


def as_parts(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def contents(item: Fields, name: str) -> Any:
    """A text, or parts as chats have them; a single part of text is a text."""
    given = item.get(name)
    if given is None:
        raise item.missing(name)
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise item.error(name, "expected a string or an array of parts")
    parts = [part_of(part) for part in item.objects(name)]
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def part_of(part: Fields) -> dict[str, Any]:
    kind = part.text("type", default="")
    if kind in ("input_text", "output_text", "text", "refusal"):
        name = "refusal" if kind == "refusal" else "text"
        text = part.text(name)
        if text is None:
            raise part.missing(name)
        return {"type": "text", "text": text}
    if kind == "input_image":
        url = part.text("image_url")
        if url is None:
            raise part.missing("image_url")
        return {"type": "image_url", "image_url": {"url": url, "detail": part.text("detail", default="auto")}}
    raise part.error("type", f"expected input_text, output_text, refusal or input_image, found {shown(kind)}")


def tools(fields: Fields) -> list[dict[str, Any]]:
    """The functions that may be called; tools of the hosted API's own are left out, as llama-server does."""
    found = []
    for tool in fields.objects("tools"):
        kind = tool.text("type")
        if kind != "function":
            logger.warning("%stype: a tool of type %s is left out; expected function", tool.path, shown(kind))
            continue
        function = tool.nested("function") if "function" in tool else tool
        if function.text("name") is None:
            raise function.missing("name")
        found.append({"type": "function", "function": {
            name: function.get(name) for name in ("name", "description", "parameters") if name in function}})
    return found


def answer_format(text: Fields) -> dict[str, Any]:
    """The field `response_format` of chats."""
    wanted = text.nested("format")
    kind = wanted.choice("type", ("text", "json_object", "json_schema"), "text")
    if kind != "json_schema":
        return {"response_format": {"type": kind}} if kind == "json_object" else {}
    schema = wanted.mapping("schema")
    if schema is None:
        raise wanted.missing("schema")
    return {"response_format": {"type": kind, "json_schema": {"name": wanted.text("name"), "schema": schema}}}
