"""Calls that are written as calls of Python functions."""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_calls import JsonCalls
from ggpy.text.tool_calls.json_text import dumped
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

_JSON = JsonCalls(name="json")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_BREAKS = {"\n": "\\n", "\r": "\\r"}
_ESCAPED = "\n\\'\"abfnrtv01234567xNuU"      # what Python knows behind a backslash
_NAMES = {"true": True, "false": False, "null": None}
MAX_CHARACTERS = 100_000        # of the arguments of a call, which Python's parser reads at once
MAX_DEPTH = 50


@dataclass(frozen=True, kw_only=True)
class PythonCalls(ToolFormat):
    """Calls `[name(key=value, ...), ...]` between one of `begins` and one of `ends`.

    With `is_bare`, an answer may begin with such a list that nothing announces, if its first call is of a tool that
    there is.
    """

    ends: tuple[str, ...] = ()
    is_bare: bool = False

    def read(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        if self.is_bare:
            yield from self._read_bare(s, out, tools)
        yield from super().read(s, out, tools)

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        n_before = out.n_calls
        yield from s.spaces()
        if (yield from s.peek()) == "{":
            return (yield from _JSON.read_calls(begin, s, out, tools))
        is_list = yield from s.take("[")
        yield from s.spaces()
        if (yield from s.peek()) == "{":
            return (yield from _JSON.read_calls(begin, s, out, tools))
        if not (yield from read_python_calls(s, out, tools)):
            return False
        if is_list:
            yield from s.take("]")
        yield from s.spaces()
        if self.ends:
            yield from s.take(*self.ends)
        return out.n_calls > n_before

    def _read_bare(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        s.save()
        yield from s.spaces()
        if (yield from s.take("[")) and (yield from read_python_calls(s, out, tools, only_known=True)):
            yield from s.take("]")
            s.saved()
        else:
            out.content(s.saved())


def read_python_calls(s: Scanner, out: Output, tools: ToolList, *, only_known: bool = False) -> Steps[bool]:
    """Read calls with commas between them; whether all of them are."""
    while True:
        yield from s.spaces()
        name = yield from s.word()
        if not name:
            return False
        if only_known and name not in tools:
            return False
        if not (yield from read_python_call(name, s, out, tools)):
            return False
        s.save()
        yield from s.spaces()
        if not (yield from s.take(",")):
            return True


def read_python_call(name: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
    """Read the arguments that stand here in brackets, and tell the call; whether they are arguments."""
    if (yield from s.peek()) != "(":
        return False
    text = yield from _read_brackets(s)
    arguments = None if text is None else _arguments(text, tools.parameters(name))
    if arguments is None:
        return False
    out.call(name, dumped(arguments))
    return True


def _read_brackets(s: Scanner) -> Steps[str | None]:
    """The text from the opening bracket that stands here to the one that closes it; None if none does.

    What models write in strings though Python does not allow it, line breaks and escapes of its own, is put right.
    """
    read: list[str] = []
    closing: list[str] = []
    quote = ""
    while (c := (yield from s.peek())) and len(read) < MAX_CHARACTERS:
        if quote:
            read.append(_BREAKS.get(c, c))
            s.skip()
            if c == "\\":
                escaped = yield from s.ahead(1)
                s.skip(len(escaped))
                read.append(escaped if escaped in _ESCAPED else f"\\{escaped}")
            elif c == quote:
                quote = ""
            continue
        if c in ")]}" and c != closing.pop():
            return None
        read.append(s.skip())
        if c in _CLOSING:
            closing.append(_CLOSING[c])
        elif c in "'\"":
            quote = c
        if not closing:
            return "".join(read)
        if len(closing) > MAX_DEPTH:
            return None
    return None


def _arguments(text: str, parameters: list[str]) -> dict[str, Any] | None:
    """Arguments of a Python call in brackets, those without a name being the first of `parameters`; None if it is not
    one of plain values."""
    try:
        call = ast.parse("f" + text, mode="eval").body
        if not isinstance(call, ast.Call) or len(call.args) > len(parameters):
            return None
        arguments = {key: _value(node) for key, node in zip(parameters, call.args, strict=False)}
        for keyword in call.keywords:
            if keyword.arg is None:
                return None
            arguments[keyword.arg] = _value(keyword.value)
        json.dumps(arguments, allow_nan=False)
        return arguments
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> Any:
    """The plain value of an expression. Raises ValueError if it has none."""
    if isinstance(node, ast.Name) and node.id in _NAMES:
        return _NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError("a dictionary in a dictionary")
        return {ast.literal_eval(key): _value(value) for key, value in zip(node.keys, node.values, strict=True) if key}
    value = ast.literal_eval(node)
    if not isinstance(value, str | int | float | bool | None):
        raise ValueError(f"{type(value).__name__} is no type of JSON")
    return value
