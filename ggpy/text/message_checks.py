"""Messages as callers give them, checked: an error names the field, what was found and what is expected.

Templates differ in what they look at and trust the rest, so that a wrong message fails in the middle of one, in words
about its variables, or is written wrong. What is refused here is wrong for every template.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.errors import TemplateError, shown

# Names of what a model thought before its answer; templates read the first, or those for gpt-oss the second.
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
_TEXT_FIELDS = (*REASONING_FIELDS, "name", "tool_call_id")
_TALKING_ROLES = ("system", "developer", "user", "assistant")    # a tool's result may be any data


def check_sequence(values: Any, name: str) -> None:
    """Raises TemplateError if `values` is no sequence, or a text."""
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise TemplateError(f"{name}: expected a list of mappings, found {shown(values)}")


def check_mapping(value: Any, where: str, expected: str) -> None:
    """Raises TemplateError if `value` is no mapping."""
    if not isinstance(value, Mapping):
        raise TemplateError(f"{where}: expected {expected}, found {shown(value)}")


def check_message(message: Mapping[str, Any], where: str) -> None:
    """Raises TemplateError if `message`, plain data without empty fields, lacks a role or has nothing to say, or if a
    field that templates know is of another type than they expect."""
    role = message.get("role")
    if role is None:
        raise TemplateError(f"{where} has no role: expected system, user, assistant or tool")
    _check_text(role, f"{where}.role", "a text such as system, user, assistant or tool")
    for name in _TEXT_FIELDS:
        if name in message:
            _check_text(message[name], f"{where}.{name}", "a text")
    calls = message.get("tool_calls")
    if calls is not None:
        _check_calls(calls, f"{where}.tool_calls")
    if "content" in message:
        _check_content(message["content"], f"{where}.content", role in _TALKING_ROLES)
    elif not calls and not any(name in message for name in REASONING_FIELDS):
        raise TemplateError(f"{where}.content is missing: expected a text or a list of parts; only a message with "
                            "tool_calls or reasoning_content may go without")


def _check_text(value: Any, where: str, expected: str) -> None:
    if not isinstance(value, str):
        raise TemplateError(f"{where}: expected {expected}, found {shown(value)}")


def _check_content(content: Any, where: str, is_talk: bool) -> None:
    if isinstance(content, str):
        return
    if isinstance(content, dict) and not is_talk:
        return
    if not isinstance(content, list):
        hint = "; put it into a list" if isinstance(content, dict) else ""
        raise TemplateError(f"{where}: expected a text or a list of parts, found {shown(content)}{hint}")
    for index, part in enumerate(content if is_talk else ()):
        if isinstance(part, str):
            continue
        check_mapping(part, f"{where}[{index}]", "a part such as {'type': 'text', 'text': 'Hi'}")
        if part.get("type", "text") == "text":
            _check_text(part.get("text"), f"{where}[{index}].text", "a text")


def _check_calls(calls: Any, where: str) -> None:
    check_sequence(calls, where)
    for index, call in enumerate(calls):
        check_mapping(call, f"{where}[{index}]", "a mapping")
        has_function = "function" in call
        function = call["function"] if has_function else call
        place = f"{where}[{index}].function" if has_function else f"{where}[{index}]"
        check_mapping(function, place, "a mapping with name and arguments")
        _check_text(function.get("name"), f"{place}.name", "a text")
