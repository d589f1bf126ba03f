"""Calls that are a name and, behind it, the arguments as a JSON object."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_calls import as_object
from ggpy.text.tool_calls.json_text import read_json
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList


@dataclass(frozen=True, kw_only=True)
class NamedCalls(ToolFormat):
    """Calls `begin name separator {...} end`.

    `sections` are texts around all calls, `call_begins` those before each name where it is not one of `begins` itself.
    `id_separator` stands between the name and the model's id of the call. With `id_is_first`, the id stands before the
    name, that between them. `name_prefix` is no part of names; with `has_number`, ":0" and so on behind a name neither,
    and the whole is the id.
    """

    call_begins: tuple[str, ...] = ()
    separators: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    section_ends: tuple[str, ...] = ()
    id_separator: str | None = None
    id_is_first: bool = False
    name_prefix: str = ""
    has_number: bool = False

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        n_before = out.n_calls
        while True:
            if self.call_begins and begin not in self.call_begins:
                yield from s.spaces()
                if not (yield from s.take(*self.call_begins)):
                    break
            if not (yield from self._read_call(s, out, tools)):
                return False
            s.save()
            if not self.call_begins:
                break
            begin = ""
        if self.section_ends:
            yield from s.spaces()
            yield from s.take(*self.section_ends)
        return out.n_calls > n_before

    def _read_call(self, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        yield from s.spaces()
        first = yield from s.word()
        second = None
        if self.id_separator is not None:
            yield from s.spaces()
            if (yield from s.take(self.id_separator)):
                yield from s.spaces()
                second = yield from s.word()
        name, call_id = (second or "", first) if self.id_is_first else (first, second)
        if self.has_number:
            name, call_id = name.rpartition(":")[0] or name, name
        name = name.removeprefix(self.name_prefix)
        yield from s.spaces()
        if not name or (self.separators and not (yield from s.take(*self.separators))):
            return False
        yield from s.spaces()
        yield from s.take("```json")
        yield from s.spaces()
        if not (yield from self.read_arguments(name, call_id, s, out, tools)):
            return False
        yield from s.spaces()
        yield from s.take("```")
        yield from s.spaces()
        if self.ends:
            yield from s.take(*self.ends)
        return True

    def read_arguments(self, name: str, call_id: str | None, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        """Read the arguments of a call, and end it; whether they are JSON."""
        c = yield from s.peek()
        if c == "{":
            out.begin(name, call_id)
            if not (yield from read_json(s, out.arguments)):
                return False
            out.end()
            return True
        if c == '"':
            pieces: list[str] = []
            if not (yield from read_json(s, pieces.append)):
                return False
            arguments = as_object("".join(pieces))
            if not isinstance(json.loads(arguments), dict):
                return False
            out.call(name, arguments, call_id)
            return True
        if not self.ends or not any(c == end[0] for end in self.ends):
            return False
        out.call(name, "{}", call_id)       # nothing between separator and end
        return True
