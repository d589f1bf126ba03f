"""Calls that are a name and, behind it, the arguments as a JSON object."""

from __future__ import annotations

from dataclasses import dataclass

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_calls import JsonCalls, as_object
from ggpy.text.tool_calls.json_text import read_json
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

_JSON = JsonCalls(name="json")      # which models write behind the tags of other formats too


@dataclass(frozen=True, kw_only=True)
class NamedCalls(ToolFormat):
    """Calls `begin name separator {...} end`.

    Where `begins` open a section of several calls, `call_begins` stand before each name and `section_ends` behind all.
    `id_separator` stands between the name and the model's id of the call or, with `id_is_first`, between id and name.
    `name_prefix` is no part of names. With `has_number`, names end in ":0" and so on, and all of that is the id. With
    `has_kind`, the word before the separator may be "function", and the name stands behind it.
    """

    call_begins: tuple[str, ...] = ()
    separators: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    section_ends: tuple[str, ...] = ()
    id_separator: str | None = None
    id_is_first: bool = False
    name_prefix: str = ""
    has_number: bool = False
    has_kind: bool = False

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        n_before = out.n_calls
        yield from s.spaces()
        c = yield from s.peek()
        if c and c in "[{":
            return (yield from _JSON.read_calls(begin, s, out, tools))
        while True:
            if self.call_begins and begin not in self.call_begins:
                yield from s.spaces()
                if not (yield from s.take(*self.call_begins)):
                    break
            if not (yield from self._read_call(s, out)):
                return False
            s.save()
            if not self.call_begins:
                break
            begin = ""
        if self.section_ends:
            yield from s.take(*self.section_ends)
        return out.n_calls > n_before

    def _read_call(self, s: Scanner, out: Output) -> Steps[bool]:
        name, call_id = yield from self._read_name(s)
        if not name:
            return False
        yield from s.spaces()
        yield from s.take("```json", "```")
        yield from s.spaces()
        if not (yield from self._read_arguments(name, call_id, s, out)):
            return False
        yield from s.spaces()
        yield from s.take("```")
        yield from s.spaces()
        if self.ends:
            yield from s.take(*self.ends)
        return True

    def _read_name(self, s: Scanner) -> Steps[tuple[str, str | None]]:
        """The name, "" if there is none, and the model's id of the call; the separator is read too."""
        yield from s.spaces()
        name = yield from s.word()
        call_id: str | None = None
        if self.id_separator is not None:
            yield from s.spaces()
            if (yield from s.take(self.id_separator)):
                yield from s.spaces()
                call_id = yield from s.word()
        if self.id_is_first:
            name, call_id = call_id or "", name
        yield from s.spaces()
        if self.separators and (yield from s.take(*self.separators)) and self.has_kind and name == "function":
            yield from s.spaces()
            name = (yield from s.word()) or name
        if self.has_number:
            name, call_id = name.rpartition(":")[0] or name, name
        return name.removeprefix(self.name_prefix), call_id

    def _read_arguments(self, name: str, call_id: str | None, s: Scanner, out: Output) -> Steps[bool]:
        """Read the arguments of a call, and end it; whether they are JSON."""
        c = yield from s.peek()
        if c == "{":
            out.begin(name, call_id)
            if not (yield from read_json(s, out.arguments)):
                return False
            out.end()
            return True
        pieces: list[str] = []
        if c == '"' and (yield from read_json(s, pieces.append)):
            arguments = as_object("".join(pieces))
            if arguments is not None:
                out.call(name, arguments, call_id)
                return True
        return False
