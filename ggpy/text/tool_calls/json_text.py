"""JSON values within text, handed on as they arrive."""

from __future__ import annotations

import json
import re
from typing import Any

from ggpy.text.tool_calls.scanner import Emit, Scanner, Steps

MAX_DEPTH = 100
_IN_STRING = re.compile(r'[^"\\]*')
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_SCALAR_CHARACTERS = "+-.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_CONTROLS = {c: json.dumps(chr(c))[1:-1] for c in range(32)}


def read_json(s: Scanner, emit: Emit, depth: int = 0) -> Steps[bool]:
    """Hand the JSON value that stands here to `emit` piece by piece; whether it is one, and complete.

    If it is not, what precedes the wrong place has been read. Two mistakes that models make are put right: line breaks
    within strings, and Python's names of true, false and null.
    """
    c = yield from s.peek()
    if c and c in "{[":
        return depth < MAX_DEPTH and (yield from _read_container(s, emit, depth))
    if c == '"':
        return (yield from _read_string(s, emit))
    text = yield from s.run_of(_SCALAR_CHARACTERS)
    text = _PYTHON.get(text, text)
    emit(text)
    return SCALAR.fullmatch(text) is not None


def read_text(s: Scanner) -> Steps[str | None]:
    """The text that a JSON string here stands for; None if there is none."""
    pieces: list[str] = []
    if (yield from s.peek()) != '"' or not (yield from _read_string(s, pieces.append)):
        return None
    text: str = json.loads("".join(pieces))
    return _without_halves(text)


def loaded(text: str) -> Any:
    """The value of JSON text. Raises ValueError or RecursionError if it is not JSON, NaN and Infinity being none."""
    return json.loads(text, parse_constant=_no_number)


def is_json(text: str) -> bool:
    """Whether `text` is JSON, NaN and Infinity being none."""
    try:
        loaded(text)
        return True
    except (ValueError, RecursionError):
        return False


def ends_in_string(text: str) -> bool:
    """Whether `text` is the beginning of JSON and ends within a string of it."""
    try:
        loaded(text)
    except json.JSONDecodeError as error:
        return error.msg.startswith("Unterminated string")
    except (ValueError, RecursionError):
        pass
    return False


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def dumped(value: Any) -> str:
    """`value` as JSON text with its characters as they are. Raises ValueError if it holds a number that JSON lacks."""
    return _without_halves(json.dumps(value, ensure_ascii=False, allow_nan=False))


def _without_halves(text: str) -> str:
    """`text` without halves of surrogate pairs, which cannot be sent."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _read_container(s: Scanner, emit: Emit, depth: int) -> Steps[bool]:
    opening = s.skip()
    emit(opening)
    closing = "}" if opening == "{" else "]"
    emit((yield from s.spaces()))
    if (yield from s.peek()) == closing:
        emit(s.skip())
        return True
    while True:
        if opening == "{" and not (yield from _read_key(s, emit)):
            return False
        if not (yield from read_json(s, emit, depth + 1)):
            return False
        emit((yield from s.spaces()))
        c = yield from s.peek()
        if c != closing and c != ",":
            return False
        emit(s.skip())
        if c == closing:
            return True
        emit((yield from s.spaces()))


def _read_key(s: Scanner, emit: Emit) -> Steps[bool]:
    if (yield from s.peek()) != '"' or not (yield from _read_string(s, emit)):
        return False
    emit((yield from s.spaces()))
    if (yield from s.peek()) != ":":
        return False
    emit(s.skip())
    emit((yield from s.spaces()))
    return True


def _read_string(s: Scanner, emit: Emit) -> Steps[bool]:
    emit(s.skip())
    while (yield from s.chunk(_IN_STRING, lambda text: emit(text.translate(_CONTROLS)))):
        if (yield from s.peek()) == '"':
            emit(s.skip())
            return True
        escape = yield from s.ahead(2)
        if escape == "\\u":
            escape = yield from s.ahead(6)
        if not _ESCAPE.fullmatch(escape):
            return False
        emit(s.skip(len(escape)))
    return False
