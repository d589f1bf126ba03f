"""Anthropic's messages and tools as the chat core takes them, which is OpenAI's way to write them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ggpy.errors import shown
from ggpy.server.web.fields import Fields, named

Message = dict[str, Any]

ROLES = ("user", "assistant", "system")
MAX_MESSAGES = 100_000      # as many as Anthropic takes
# of tools that Anthropic's own servers run, and reasoning that only they can read
SKIPPED = frozenset({
    "redacted_thinking", "server_tool_use", "web_search_tool_result", "web_fetch_tool_result",
    "code_execution_tool_result", "bash_code_execution_tool_result", "text_editor_code_execution_tool_result",
    "tool_search_tool_result", "container_upload", "tool_reference", "browser_state",
})
READ = ("text", "image", "document", "search_result", "thinking", "tool_use", "tool_result")
STAMP = re.compile(r"\A(x-anthropic-billing-header:.*?cch=).{5};", re.DOTALL)

logger = logging.getLogger("ggpy")


def read_messages(fields: Fields) -> list[Message]:
    """The fields `system` and `messages`. Raises FieldError.

    A message of the user becomes several where it holds results of tools, in the order of its blocks. An empty list
    is a user who says nothing, as for llama-server.
    """
    if "messages" not in fields:
        raise fields.missing("messages")
    given = fields.objects("messages")
    if len(given) > MAX_MESSAGES:
        raise fields.error("messages", f"{len(given):,} are too many; expected {MAX_MESSAGES:,} at most")
    messages = [converted for message in given for converted in read_message(message)]
    return [*read_system(fields), *messages] if messages else [*read_system(fields), {"role": "user", "content": ""}]


def read_system(fields: Fields) -> list[Message]:
    """The message of the system, if there is one: its blocks make one text."""
    given = fields.get("system")
    if given is None:
        return []
    texts = [given] if isinstance(given, str) else [text_of(block) for block in blocks(fields, "system")]
    return [{"role": "system", "content": "".join(map(without_stamp, texts))}]


def without_stamp(text: str) -> str:
    """`text` of a system prompt, always the same: some clients sign each request in its first line.

    The signature is overwritten as llama-server does it, for no prompt could be reused with it.
    """
    return STAMP.sub(r"\1fffff;", text)


def read_message(message: Fields) -> list[Message]:
    """The messages that one of Anthropic's means."""
    role = message.choice("role", ROLES, "")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if content is None:
        if role == "assistant":
            return []
        raise message.missing("content")
    parts = blocks(message, "content")
    return [read_assistant(parts)] if role == "assistant" else list(read_turn(role, parts))


def read_assistant(parts: Sequence[Fields]) -> Message:
    """A message of the assistant: its texts are one, as they were when the model wrote them."""
    texts, reasoning, calls = [], [], []
    for block in parts:
        match block.text("type"):
            case "text":
                texts.append(text_of(block))
            case "thinking":
                reasoning.append(block.text("thinking", default=""))
            case "tool_use":
                calls.append(read_call(block))
            case "image" | "document" | "search_result" | "tool_result":
                raise block.error("type", f"expected text, thinking or tool_use of the assistant, found "
                                          f"{shown(block.get('type'))}")
    message: Message = {"role": "assistant", "content": "".join(texts)}
    if any(reasoning):
        message["reasoning_content"] = "".join(reasoning)
    if calls:
        message["tool_calls"] = calls
    return message


def read_call(block: Fields) -> dict[str, Any]:
    """The call of a tool in a block `tool_use`."""
    arguments = json.dumps(block.mapping("input") or {}, ensure_ascii=False)
    return {"id": required(block, "id"), "type": "function",
            "function": {"name": required(block, "name"), "arguments": arguments}}


def read_turn(role: str, parts: Sequence[Fields]) -> Iterator[Message]:
    """What user or system say, and results of tools, each a message of its own."""
    contents: list[Any] = []
    for block in parts:
        if block.get("type") != "tool_result":
            contents += readable([block])
            continue
        if contents:
            yield {"role": role, "content": content_of(contents)}
            contents = []
        yield read_result(block)
    if contents:
        yield {"role": role, "content": content_of(contents)}


def read_result(block: Fields) -> Message:
    """What a tool answered; its texts are one."""
    found = readable(blocks(block, "content")) if "content" in block else []
    has_text_alone = all(part["type"] == "text" for part in found)
    content = "".join(part["text"] for part in found) if has_text_alone else found
    return {"role": "tool", "tool_call_id": required(block, "tool_use_id"), "content": content}


def readable(parts: Sequence[Fields]) -> list[dict[str, Any]]:
    """The parts of a content as OpenAI writes them, of blocks that hold something for the model to read."""
    found: list[dict[str, Any]] = []
    for block in parts:
        match block.get("type"):
            case "text":
                found.append({"type": "text", "text": text_of(block)})
            case "image":
                found.append({"type": "image_url", "image_url": {"url": image_url(block)}})
            case "document" | "search_result":
                found += text_parts(document_text(block))
            case "thinking" | "tool_use" | "tool_result":
                raise block.error("type", f"expected text, image, document or search_result here, found "
                                          f"{shown(block.get('type'))}")
    return found


def content_of(parts: list[dict[str, Any]]) -> Any:
    """The content of a message: a string if it is one text."""
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


def text_parts(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


def document_text(block: Fields) -> str:
    """The text of a document or of a search's result, below its title; "" for one that is no text."""
    if block.get("type") == "search_result":
        texts = [text_of(part) for part in blocks(block, "content")]
    else:
        source = block.nested("source")
        kind = source.text("type")
        if kind == "content":
            texts = [text_of(part) for part in blocks(source, "content") if part.get("type") == "text"]
        elif kind == "text":
            texts = [source.text("data", default="")]
        else:
            logger.warning("a document of type %s is left out: only texts are read", shown(kind))
            return ""
    title = block.text("title")
    return "\n".join(([title] if title else []) + texts)


def image_url(block: Fields) -> str:
    """The address of a picture, which may hold the picture itself."""
    source = block.nested("source")
    if source.choice("type", ("base64", "url"), "") == "url":
        return required(source, "url")
    return f"data:{source.text('media_type', default='image/jpeg')};base64,{required(source, 'data')}"


def blocks(fields: Fields, name: str) -> list[Fields]:
    """The blocks of a content, which may be a string; each has a type that is known. What nobody could read is left
    out."""
    given = fields.get(name)
    if isinstance(given, str):
        return [Fields({"type": "text", "text": given}, f"{fields.path}{name}.")]
    if not isinstance(given, list):
        raise fields.error(name, f"expected a string or an array of blocks, found {named(given)}")
    found = []
    for block in fields.objects(name):
        kind = block.text("type", default="")
        if kind not in READ and kind not in SKIPPED:
            raise block.error("type", f"expected one of {', '.join(READ)}, found {shown(kind)}")
        if kind in READ:
            found.append(block)
    return found


def text_of(block: Fields) -> str:
    """The text of a block of text."""
    if block.get("type") != "text":
        raise block.error("type", f"expected 'text', found {shown(block.get('type'))}")
    return required(block, "text")


def required(fields: Fields, name: str) -> str:
    """The string in `name`."""
    text = fields.text(name)
    if text is None:
        raise fields.missing(name)
    return text


def read_tools(fields: Fields) -> list[dict[str, Any]]:
    """The functions in field `tools`. Raises FieldError; also for tools that only Anthropic's servers have."""
    found = []
    for tool in fields.objects("tools"):
        if tool.text("type", default="custom") != "custom":
            raise tool.error("type", f"expected 'custom', found {shown(tool.get('type'))}: this server has no tools of "
                                     "its own")
        found.append({"type": "function", "function": {
            "name": required(tool, "name"), "description": tool.text("description", default=""),
            "parameters": tool.mapping("input_schema") or {}}})
    return found
