"""Messages as a chat template takes them: plain data, in the shape that the template can write."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.errors import TemplateError
from ggpy.text.chat_capabilities import Capabilities
from ggpy.text.message_checks import REASONING_FIELDS, check_mapping, check_message, check_sequence

PlainMessage = dict[str, Any]
_RESERVED = ("messages", "tools", "documents", "add_generation_prompt")
_CONTINUATION = "CONTINUE_FINAL_MESSAGE_TAG "        # Transformers' own, so that templates meet the same text


def plain_messages(messages: Sequence[Mapping[str, Any]]) -> list[PlainMessage]:
    """Copies of `messages` without their empty fields, with reasoning under each name that templates read.

    Raises TemplateError if a message is not a mapping of plain data, or is not what templates expect of one.
    """
    check_sequence(messages, "messages")
    plain = []
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        check_mapping(message, where, "a mapping with role and content")
        fields = {key: plain_data(value, f"{where}.{key}") for key, value in message.items() if value is not None}
        check_message(fields, where)
        reasoning = next((fields[name] for name in REASONING_FIELDS if name in fields), None)
        if reasoning is not None:
            fields = {"thinking": reasoning, **fields, "reasoning_content": reasoning}
        plain.append(fields)
    return plain


def plain_mappings(values: Sequence[Mapping[str, Any]] | None, name: str) -> list[dict[str, Any]] | None:
    """Copies of `values`, tools or documents. Raises TemplateError if one is not a mapping of plain data."""
    if values is None:
        return None
    check_sequence(values, name)
    for index, value in enumerate(values):
        check_mapping(value, f"{name}[{index}]", "a mapping")
    return [plain_data(value, f"{name}[{index}]") for index, value in enumerate(values)]


def plain_variables(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of `values`, variables of a template by name. Raises TemplateError if a name is reserved."""
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise TemplateError(f"chat_template_kwargs: expected a mapping of names to values, found {values!r:.60}")
    for name in _RESERVED:
        if name in values:
            raise TemplateError(f"chat_template_kwargs: {name!r} is not a variable of its own; give it as {name}")
    return {name: plain_data(value, f"chat_template_kwargs.{name}") for name, value in values.items()}


def plain_data(value: Any, where: str) -> Any:
    """A deep copy of `value` in Python's own types, safe to hand to a template.

    Raises TemplateError if it has anything but mappings, sequences, strings, numbers, booleans and None.
    """
    if value is None or type(value) in (str, int, float, bool):
        return value
    # members of enumerations and the like, back to the base type
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, Mapping):
        return {plain_data(key, where): plain_data(item, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [plain_data(item, f"{where}[{index}]") for index, item in enumerate(value)]
    raise TemplateError(f"{where}: expected text, numbers, lists or mappings, found {type(value).__name__}")


def adapt(messages: list[PlainMessage], can: Capabilities) -> None:
    """Bring `messages` into the shape that the template `can` write, in place.

    Raises TemplateError if the content has a part, such as an image, that the template cannot write, or if arguments of
    a call are not JSON.
    """
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        calls = message.get("tool_calls")
        if calls and can.needs_content:
            message.setdefault("content", "")
        content = message.get("content")
        if isinstance(content, str) and not can.string_content:
            message["content"] = [{"type": "text", "text": content}]
        elif isinstance(content, list) and not can.content_parts:
            message["content"] = _joined_parts(content, where)
        if isinstance(calls, list):
            for position, call in enumerate(calls):
                _adapt_arguments(call, can, f"{where}.tool_calls[{position}]")


def _joined_parts(parts: list[Any], where: str) -> str:
    texts = []
    for index, part in enumerate(parts):
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and part.get("type", "text") == "text" and isinstance(part.get("text"), str):
            texts.append(part["text"])
        else:
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise TemplateError(f"{where}.content[{index}]: the model's template takes only text, found {kind!r}")
    return "\n".join(texts)


def _adapt_arguments(call: Any, can: Capabilities, where: str) -> None:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict) or "arguments" not in function:
        return
    arguments = function["arguments"]
    if isinstance(arguments, str) and not can.string_arguments and can.object_arguments:
        try:
            function["arguments"] = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError) as error:
            raise TemplateError(f"{where}: the arguments {arguments!r:.60} are not JSON: {error}") from error
    elif isinstance(arguments, dict | list) and not can.object_arguments and can.string_arguments:
        function["arguments"] = json.dumps(arguments, ensure_ascii=False)


def mark_continuation(messages: list[PlainMessage], field: str) -> str:
    """Mark, in place, where `field` of the last message ends; returns its text so far.

    Raises TemplateError if that field is not a string or has no text part.
    """
    if not messages:
        raise TemplateError("there is no message to continue: expected one at the end of messages")
    last = messages[-1]
    value = last.get(field)
    if isinstance(value, str):
        same = [name for name in REASONING_FIELDS if last.get(name) == value] if field in REASONING_FIELDS else [field]
        last.update(dict.fromkeys(same, value + _CONTINUATION))
        return value
    if isinstance(value, list):
        for part in reversed(value):
            if isinstance(part, dict) and isinstance(part.get("text"), str):
                text: str = part["text"]
                part["text"] = text + _CONTINUATION
                return text
    raise TemplateError(f"the last message has no text under {field!r} to continue")


def cut_continuation(rendered: str, text: str) -> str:
    """`rendered` up to the mark behind `text`; raises TemplateError if the template changed or left out the text."""
    mark = _CONTINUATION.strip()
    end = rendered.rfind(mark)
    if end < 0 or text.strip() not in rendered:
        raise TemplateError("the last message cannot be continued: the model's template leaves it out or changes it")
    # a template that trims has cut the space behind the mark, and so the one at the end of the text
    return rendered[:end] if rendered.startswith(_CONTINUATION, end) else rendered[:end].rstrip()
