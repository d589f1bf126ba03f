"""Messages as clients send them, made ready for the model's template, as llama-server does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from ggpy.errors import RequestError
from ggpy.text.chat import ChatTemplate
from ggpy.text.message_checks import REASONING_FIELDS

# of a last message of the assistant: "auto" takes its content, or its reasoning if it has nothing else
Continuation = Literal["auto", "content", "reasoning_content", "never"]
Messages = list[Any]        # what is wrong with one, the template says

MEDIA = {"image_url": "image", "image": "image", "input_image": "image", "input_audio": "audio", "audio": "audio",
         "audio_url": "audio", "input_video": "video", "video_url": "video", "video": "video"}
NO_MEDIA = "input is not supported: this model reads text alone; leave it out"


def template_messages(messages: Sequence[Mapping[str, Any]], template: ChatTemplate,
                      continuation: Continuation = "never") -> tuple[Messages, str | None]:
    """`messages` for `template`, and the field of the last one that the answer goes on with, if any.

    Developers are systems, but for gpt-oss. Where a template takes no system message, its text stands before what the
    user says first; where one writes no calls of tools, they are part of what the assistant said. Raises RequestError
    if the last message cannot be continued, and if there is more than text.
    """
    found: Messages = list(messages)
    refuse_media(found)
    if "<|channel|>" not in template.source:
        found = [{**message, "role": "system"} if role_of(message) == "developer" else message for message in found]
    if len(found) > 1 and role_of(found[0]) == "system" and not template.capabilities.system_role:
        found = [with_system_text(found[0], found[1]), *found[2:]]
    field = None if continuation == "never" else continued_field(found, continuation)
    if not template.variants.get("tool_use", template).capabilities.tool_calls:
        found = [with_spelled_calls(message) for message in found]
    if field == "content":
        found[-1] = {**found[-1], "content": content_text(found[-1].get("content"), "\n\n")}
    return found, field


def refuse_media(messages: Messages) -> None:
    """Raises RequestError for pictures and the like, which no model here sees, though its template may mark them."""
    if (found := find_media(messages)) is not None:
        place, kind = found
        raise RequestError(f"{place}: {kind} {NO_MEDIA}")


def find_media(messages: Messages) -> tuple[str, str] | None:
    """Where there is more than text in `messages`, and what; None if there is not."""
    for i, message in enumerate(messages):
        content = message.get("content") if isinstance(message, Mapping) else None
        for j, part in enumerate(content if isinstance(content, list) else ()):
            kind = MEDIA.get(str(part.get("type"))) if isinstance(part, Mapping) else None
            if kind is not None:
                return f"messages[{i}].content[{j}]", kind
    return None


def role_of(message: Any) -> Any:
    return message.get("role") if isinstance(message, Mapping) else None


def continued_field(messages: Messages, continuation: Continuation) -> str | None:
    """The field that the answer goes on with: None if the last message is not the assistant's."""
    if not messages or role_of(messages[-1]) != "assistant":
        return None
    if len(messages) > 1 and role_of(messages[-2]) == "assistant":
        raise RequestError("Cannot have 2 or more assistant messages at the end of the list.")
    last = messages[-1]
    if last.get("tool_calls"):
        raise RequestError("Cannot continue an assistant message that contains tool calls.")
    if continuation == "auto":
        return "content" if last.get("content") or not any(map(last.get, REASONING_FIELDS)) else "reasoning_content"
    return continuation


def with_spelled_calls(message: Any) -> Any:
    """`message` with its calls of tools as JSON at the end of its content; one that has none as it is."""
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(calls, list) or not calls:
        return message
    functions = [call.get("function", call) if isinstance(call, Mapping) else call for call in calls]
    lines = [spelled(function) for function in functions]
    content = content_text(message.get("content"), "\n")
    text = "\n".join([content, *lines] if content and isinstance(content, str) else lines)
    return {**{key: value for key, value in message.items() if key != "tool_calls"}, "content": text}


def spelled(function: Any) -> str:
    """A call as JSON, the arguments too."""
    if isinstance(function, Mapping) and isinstance(function.get("arguments"), str):
        with suppress(ValueError, RecursionError):
            function = {**function, "arguments": json.loads(function["arguments"])}
    return json.dumps(function, ensure_ascii=False, default=str)


def with_system_text(system: Any, message: Any) -> Any:
    """`message` with the text of a system message in front of it."""
    text, content = content_text(system.get("content"), "\n"), message.get("content")
    if isinstance(content, list):
        return {**message, "content": [{"type": "text", "text": text}, *content]}
    return {**message, "content": f"{text}\n{content}" if isinstance(content, str) else content}


def content_text(content: Any, between: str) -> Any:
    """The text of a content; parts that are no text are left as they are."""
    if content is None:
        return ""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, Mapping) else part for part in content]
        strings = [text for text in texts if isinstance(text, str)]
        return between.join(strings) if len(strings) == len(texts) else content
    return content
