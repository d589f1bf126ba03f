"""Calls that are JSON objects with a name and arguments: most families, which differ in the texts around them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ggpy.text.tool_calls.format import CallShape, ToolFormat
from ggpy.text.tool_calls.json_text import loaded, read_json, read_text
from ggpy.text.tool_calls.output import Output, new_call_id
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

_NAMES = ("name", "tool_name", "function_name", "function", "tool")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_IDS = ("id", "tool_call_id", "call_id")
_WRAPPERS = ("function", "tool_call", "function_call")
_FENCES = ("```json", "```")


@dataclass(frozen=True, kw_only=True)
class JsonCalls(ToolFormat):
    """Calls `{"name": ..., "arguments": {...}}`, one, several or a list, behind one of `begins`.

    One of `ends` closes them, or nothing. With `is_bare`, an answer may begin with a call that nothing but a code
    fence announces, if it calls a tool that there is. With `name_is_key`, a call is `{name: arguments}`.
    """

    ends: tuple[str, ...] = ()
    is_bare: bool = False
    name_is_key: bool = False

    def read(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        if self.is_bare:
            yield from self._read_bare(s, out, tools)
        if self.begins:
            yield from super().read(s, out, tools)
        else:
            yield from s.rest(out.content)

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        n_before = out.n_calls
        yield from s.spaces()
        yield from s.take(*_FENCES)
        yield from s.spaces()
        is_list = yield from s.take("[")
        while True:
            yield from s.spaces()
            if (yield from s.peek()) != "{":
                break
            if not (yield from self._read_call(s, out)):
                return False
            s.save()
            yield from s.spaces()
            yield from s.run_of(",;")
        if is_list:
            yield from s.take("]")
        yield from s.spaces()
        yield from s.take("```")
        yield from s.spaces()
        if self.ends:
            yield from s.take(*self.ends)
        return out.n_calls > n_before

    def _read_bare(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        """Calls at the very beginning, as long as they are of tools that there are."""
        while True:
            s.save()
            yield from s.spaces()
            yield from s.run_of(";,")
            yield from s.spaces()
            fence = yield from s.take(*_FENCES)
            yield from s.spaces()
            is_call = (yield from s.peek()) == "{" and (yield from self._read_call(s, out, tools))
            unread = s.saved()
            if not is_call:
                if out.is_in_call:
                    out.end(is_complete=False)
                else:
                    out.content(unread)
                return
            if fence:
                yield from s.spaces()
                yield from s.take("```")

    def _read_call(self, s: Scanner, out: Output, known: ToolList | None = None) -> Steps[bool]:
        call = _Call(out, known, self.name_is_key)
        return (yield from call.read(s)) and call.finish()


class _Call:
    """One object, whose members come in any order."""

    def __init__(self, out: Output, known: ToolList | None, name_is_key: bool) -> None:
        self._out = out
        self._known = known
        self._name_is_key = name_is_key
        self._name: str | None = None
        self._id: str | None = None
        self._arguments: str | None = None      # if they came before the name

    def read(self, s: Scanner, depth: int = 0) -> Steps[bool]:
        """Read the object that stands here; whether it is one that may be a call."""
        s.skip()
        yield from s.spaces()
        if (yield from s.take("}")):
            return True
        while True:
            key = yield from read_text(s)
            yield from s.spaces()
            if key is None or not (yield from s.take(":")):
                return False
            yield from s.spaces()
            if not (yield from self._read_member(key, s, depth)):
                return False
            yield from s.spaces()
            if (yield from s.take("}")):
                return True
            if not (yield from s.take(",")):
                return False
            yield from s.spaces()

    def finish(self) -> bool:
        """Behind the object: end the call; whether there was one."""
        if not self._out.is_in_call:
            if self._name is None:
                return False
            self._out.begin(self._name, self._id)
            self._out.arguments(self._arguments or "{}")
        self._out.end()
        return True

    def _read_member(self, key: str, s: Scanner, depth: int) -> Steps[bool]:
        c = yield from s.peek()
        if self._out.is_in_call:        # nothing behind the arguments matters any more
            return (yield from read_json(s, _ignore))
        if self._name_is_key:
            return self._take_name(key) and (yield from self._read_arguments(s))
        if key in _WRAPPERS and c == "{" and depth == 0:
            return (yield from self.read(s, depth + 1))
        if key in _NAMES and c == '"' and self._name is None:
            return self._take_name((yield from read_text(s)))
        if key in _ARGUMENTS and self._arguments is None:
            return (yield from self._read_arguments(s))
        if key in _IDS and c == '"':
            self._id = yield from read_text(s)
            return self._id is not None
        return (yield from read_json(s, _ignore))

    def _take_name(self, name: str | None) -> bool:
        self._name = name or None
        return self._name is not None and (self._known is None or self._name in self._known)

    def _read_arguments(self, s: Scanner) -> Steps[bool]:
        pieces: list[str] = []
        if self._name is not None and (yield from s.peek()) == "{":
            self._out.begin(self._name, self._id)
            return (yield from read_json(s, self._out.arguments))
        if not (yield from read_json(s, pieces.append)):
            return False
        self._arguments = as_object("".join(pieces))
        return self._arguments is not None


def as_object(text: str) -> str | None:
    """Arguments that a model wrote as the JSON `text`, as an object, which may stand in a string; null is an empty one.

    None if they are anything else.
    """
    value = json.loads(text)
    if isinstance(value, str):
        text = value
        try:
            value = loaded(value)
        except (ValueError, RecursionError):
            return None
    return "{}" if value is None else text if isinstance(value, dict) else None


def _ignore(text: str) -> None:
    pass


def tagged(name: str, begin: str, end: str = "", *, is_list: bool = False, also: Sequence[str] = (),
           name_key: str = "name", arguments_key: str = "arguments", is_bare: bool = False,
           dropped: Sequence[str] = (), new_id: Callable[[], str] = new_call_id) -> JsonCalls:
    """Calls between `begin` and `end`, each between its own or, with `is_list`, a list of all between one pair.

    Tags of `also` are taken for `begin` too, and their closing tags for `end`.
    """
    ends = tuple(each for each in (end, *(tag.replace("<", "</", 1) for tag in also if tag[0] == "<")) if each)
    shape = (CallShape(begin + "[", "]" + end, ", ", name_key, arguments_key) if is_list
             else CallShape(begin, end, None, name_key, arguments_key))
    return JsonCalls(name=name, begins=(begin, *also), ends=ends, marks=(begin, *also, *ends, *dropped), shape=shape,
                     is_bare=is_bare, dropped=tuple(dropped), new_id=new_id)
