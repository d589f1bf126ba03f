"""Calls whose arguments stand between tags, one by one and as plain text."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_calls import JsonCalls
from ggpy.text.tool_calls.json_text import ends_in_string, is_json
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Emit, Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

_JSON = JsonCalls(name="json")


@dataclass(frozen=True, kw_only=True)
class TaggedCalls(ToolFormat):
    """Calls `call_begin name name_end {key_begin key key_end value value_end} call_end` behind one of `begins`.

    Whitespace may stand between any two of these but within values; with `is_on_lines`, values have a line break of the
    tags' before and behind them. Without `call_begin`, the name stands behind the begin. `section_ends` close all
    calls. Whether a value is text or JSON is told by the schema or, with `has_attributes`, by a "true" or "false"
    behind the key.
    """

    call_begin: str = ""
    name_end: str = ""
    key_begin: str
    key_end: str
    value_begin: str = ""
    value_end: str
    call_end: str
    section_ends: tuple[str, ...] = ()
    is_on_lines: bool = False
    has_attributes: bool = False

    @property
    def traces(self) -> tuple[str, ...]:
        return (*self.begins[:1], self.key_begin)

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        n_before = out.n_calls
        yield from s.spaces()
        if (yield from s.peek()) == "{":
            return (yield from _JSON.read_calls(begin, s, out, tools))
        while True:
            if self.call_begin and begin != self.call_begin:
                yield from s.spaces()
                if not (yield from s.take(self.call_begin)):
                    break
            if not (yield from self._read_call(s, out, tools)):
                return False
            s.save()
            if not self.call_begin:
                break
            begin = ""
        yield from s.spaces()
        if self.section_ends:
            yield from s.take(*self.section_ends)
        return out.n_calls > n_before

    def _read_call(self, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        name = yield from s.word()
        if not name:
            return False
        if self.name_end and not (yield from s.take(self.name_end)):
            return False
        yield from s.spaces()
        tag = yield from s.take(self.key_begin, self.call_end)
        if tag is None:
            return False
        out.begin(name)
        before = "{"
        while tag == self.key_begin:
            out.arguments(before)
            if not (yield from self._read_argument(name, s, out, tools)):
                return False
            before = ", "
            yield from s.spaces()
            tag = yield from s.take(self.key_begin, self.call_end)
        if tag is None:
            return False
        out.arguments("{}" if before == "{" else "}")
        out.end()
        return True

    def _read_argument(self, name: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        """Read a key and its value, behind the tag before the key."""
        pieces: list[str] = []
        if (yield from s.until((self.key_end, "\n"), pieces.append)) != self.key_end:
            return False
        key = "".join(pieces).strip()
        is_text = tools.is_text(name, key)
        if self.has_attributes:
            attributes: list[str] = []
            if (yield from s.until((">", "\n"), attributes.append)) != ">":
                return False
            is_text = "true" in "".join(attributes)
        if self.value_begin:
            yield from s.spaces()
            if not (yield from s.take(self.value_begin)):
                return False
        out.arguments(json.dumps(key, ensure_ascii=False) + ": ")
        if is_text:
            return (yield from self._read_text(s, out.arguments))
        text, is_complete = yield from self._read_value(s)
        out.arguments(tools.value(name, key, self._off_lines(text)))
        return is_complete

    def _read_value(self, s: Scanner) -> Steps[tuple[str, bool]]:
        """What stands before the tag behind a value, and whether that is there; in strings of JSON it is none."""
        pieces: list[str] = []
        end = yield from s.until((self.value_end,), pieces.append)
        first = "".join(pieces)
        n_behind = 0        # characters read behind the first such tag
        while end is not None and ends_in_string("".join(pieces)):
            pieces.append(self.value_end)
            n_before = sum(map(len, pieces))
            end = yield from s.until((self.value_end,), pieces.append)
            n_behind += sum(map(len, pieces)) - n_before + len(end or "")
        text = "".join(pieces)
        if n_behind and (end is None or not is_json(text)):
            s.unread(n_behind)
            return first, True
        return text, end is not None

    def _read_text(self, s: Scanner, emit: Emit) -> Steps[bool]:
        """Hand a text on as a JSON string as it arrives."""
        end: str | None
        emit('"')
        if self.is_on_lines:
            yield from s.take("\r\n", "\n")
            end = yield from s.until((f"\n{self.value_end}", self.value_end), lambda text: emit(_escaped(text)))
        else:
            end = yield from s.until((self.value_end,), lambda text: emit(_escaped(text)))
        if end is not None:
            emit('"')
        return end is not None

    def _off_lines(self, text: str) -> str:
        return text.removeprefix("\n").removesuffix("\n") if self.is_on_lines else text


def _escaped(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]
