"""Gemma: `call:name{key:value}`, where a text stands between quotes of its own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_text import MAX_DEPTH, SCALAR
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import SPACES, Emit, Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

_WORD = re.compile(r"[^,}\]\n]*")


@dataclass(frozen=True, kw_only=True)
class GemmaCalls(ToolFormat):
    """Calls `begin call:name{key:value,...} end`; values are texts in `quote`s, numbers, lists and objects."""

    ends: tuple[str, ...]
    quote: str

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        yield from s.spaces()
        if not (yield from s.take("call:")):
            return False
        yield from s.spaces()
        name = yield from s.word()
        yield from s.spaces()
        if not name or (yield from s.peek()) != "{":
            return False
        out.begin(name)
        if not (yield from self._read_value(s, out.arguments)):
            return False
        out.end()
        s.save()
        yield from s.spaces()
        yield from s.take(*self.ends)
        return True

    def _read_value(self, s: Scanner, emit: Emit, depth: int = 0) -> Steps[bool]:
        """Hand the value that stands here on as JSON; whether it is one."""
        if (yield from s.take(self.quote)):
            return (yield from self._read_text(s, emit, self.quote))
        c = yield from s.peek()
        if c == '"':
            s.skip()
            return (yield from self._read_text(s, emit, '"'))
        if c and c in "{[":
            return depth < MAX_DEPTH and (yield from self._read_container(s, emit, depth))
        pieces: list[str] = []
        yield from s.chunk(_WORD, pieces.append)
        word = "".join(pieces).rstrip(SPACES)
        emit(word if SCALAR.fullmatch(word) else json.dumps(word, ensure_ascii=False))      # a text without quotes
        return bool(word)

    def _read_text(self, s: Scanner, emit: Emit, quote: str) -> Steps[bool]:
        emit('"')
        end = yield from s.until((quote,), lambda text: emit(json.dumps(text, ensure_ascii=False)[1:-1]))
        if end is not None:
            emit('"')
        return end is not None

    def _read_container(self, s: Scanner, emit: Emit, depth: int) -> Steps[bool]:
        opening = s.skip()
        emit(opening)
        closing = "}" if opening == "{" else "]"
        yield from s.spaces()
        if (yield from s.take(closing)):
            emit(closing)
            return True
        while True:
            if opening == "{" and not (yield from self._read_key(s, emit)):
                return False
            if not (yield from self._read_value(s, emit, depth + 1)):
                return False
            yield from s.spaces()
            c = yield from s.take(closing, ",")
            if c is None:
                return False
            emit(c if c == closing else ", ")
            if c == closing:
                return True
            yield from s.spaces()

    def _read_key(self, s: Scanner, emit: Emit) -> Steps[bool]:
        quote = yield from s.take(self.quote, '"')
        pieces: list[str] = []
        if (yield from s.until((quote or ":", "\n"), pieces.append)) != (quote or ":"):
            return False
        if quote:
            yield from s.spaces()
            if not (yield from s.take(":")):
                return False
        emit(json.dumps("".join(pieces).strip(SPACES), ensure_ascii=False) + ": ")
        yield from s.spaces()
        return True
