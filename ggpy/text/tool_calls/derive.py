"""Formats that nobody has described: their tags, from what a template writes around a call that is known."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from ggpy.text.tool_calls.format import CallShape, ToolFormat
from ggpy.text.tool_calls.json_calls import JsonCalls
from ggpy.text.tool_calls.named_calls import NamedCalls
from ggpy.text.tool_calls.probes import ARGUMENTS, TOOL_NAME
from ggpy.text.tool_calls.scanner import SPACES
from ggpy.text.tool_calls.tagged_calls import TaggedCalls

_FIRST, _SECOND = ARGUMENTS
_ARGUMENTS = re.compile(rf'\{{\s*"{_FIRST}":\s*"{ARGUMENTS[_FIRST]}",\s*"{_SECOND}":\s*{ARGUMENTS[_SECOND]}\s*\}}')
_BLANKS = SPACES + ","


def derived(text: str, closing: str) -> Iterator[ToolFormat]:
    """Formats that `text`, two calls of the probe or one, may be in; `closing` ends every answer of the template."""
    text = text.removesuffix(closing)
    found = list(_ARGUMENTS.finditer(text))
    names = [each.start() for each in re.finditer(TOOL_NAME, text)]
    if found and names and names[0] < found[0].start():
        calls = [_Call(name, each.start(), each.end()) for name, each in zip(names, found, strict=False)]
        yield from (_json_calls(text, calls), _named_calls(text, calls))
    elif names:
        yield from _tagged_calls(text, names)


@dataclass(frozen=True, slots=True)
class _Call:
    """Where a name starts, and where its arguments start and end."""

    name: int
    start: int
    end: int


def _json_calls(text: str, calls: list[_Call]) -> JsonCalls:
    first, last = calls[0], calls[-1]
    begin = text[:text.rfind("{", 0, first.name)].strip(SPACES)
    end = text[text.find("}", last.end) + 1:].strip(SPACES)
    between = text[first.end:last.start]
    is_list = begin.endswith("[") and end.startswith("]")
    begin, end = (begin[:-1].rstrip(SPACES), end[1:].lstrip(SPACES)) if is_list else (begin, end)
    name_is_key = re.fullmatch(r'"\s*:\s*', text[first.name + len(TOOL_NAME):first.start]) is not None
    shape = CallShape(begin + "[", "]" + end, ", ") if is_list else CallShape(begin, end)
    has_tags = begin != "" and TOOL_NAME not in begin and ("{" in between or len(calls) == 1)
    return JsonCalls(name="derived", begins=(begin,) if has_tags else (), ends=(end,) if end else (),
                     is_bare=not begin, name_is_key=name_is_key, marks=_marks(begin, end),
                     shape=None if name_is_key else shape)


def _named_calls(text: str, calls: list[_Call]) -> NamedCalls:
    first = calls[0]
    head, tail = text[:first.name], text[calls[-1].end:].strip(SPACES)
    separator = text[first.name + len(TOOL_NAME):first.start].strip(SPACES)
    if len(calls) == 1:
        begin = head.strip(SPACES)
        return NamedCalls(name="derived", begins=(begin,), separators=_marks(separator), ends=_marks(tail),
                          marks=_marks(begin, separator, tail), shape=CallShape(begin, tail, name_end=separator))
    section, begin, end = _apart(head, text[first.end:calls[1].name])
    section_end = tail.removeprefix(end).strip(SPACES)
    shape = (CallShape(section, section_end, "", name_begin=begin, name_end=separator, arguments_end=end) if section
             else CallShape(begin, end, name_end=separator))
    return NamedCalls(name="derived", begins=_marks(section) or (begin,), call_begins=_marks(begin) if section else (),
                      separators=_marks(separator), ends=_marks(end), section_ends=_marks(section_end),
                      marks=_marks(section, begin, separator, end, section_end), shape=shape)


def _tagged_calls(text: str, names: list[int]) -> Iterator[TaggedCalls]:
    words = (TOOL_NAME, _FIRST, str(ARGUMENTS[_FIRST]), _SECOND, str(ARGUMENTS[_SECOND]))
    found = re.search("(.*?)".join(map(re.escape, words)), text[names[0]:], re.DOTALL)
    if found is None:
        return
    behind_name, behind_key, behind_value, behind_second_key = found.groups()
    if behind_key != behind_second_key:
        return
    name_end, key_begin, value_end = _apart(behind_name, behind_value)
    is_on_lines = behind_key.endswith("\n") and behind_value.startswith("\n")
    rest = text[names[0] + found.end():]
    head, tail = text[:names[0]], rest.strip(SPACES).removeprefix(value_end).strip(SPACES)
    section, begin, section_end = "", head.strip(SPACES), ""
    if len(names) > 1:
        section, begin, call_end = _apart(head, rest[:rest.find(TOOL_NAME)].strip(SPACES).removeprefix(value_end))
        section_end = text[text.rfind(call_end) + len(call_end):].strip(SPACES) if call_end else ""
    else:
        call_end = tail
    key_end = behind_key.strip(SPACES)
    if all((begin, key_begin, key_end, value_end, call_end)):
        yield TaggedCalls(
            name="derived", begins=_marks(section) or (begin,), call_begin=begin if section else "",
            name_end=name_end, key_begin=key_begin, key_end=key_end, value_end=value_end, call_end=call_end,
            section_ends=_marks(section_end), is_on_lines=is_on_lines,
            marks=_marks(section, begin, name_end, key_begin, key_end, value_end, call_end, section_end))


def _apart(first: str, later: str) -> tuple[str, str, str]:
    """Of what precedes a thing for the first time and later: what stands there only at first, each time, and behind the
    thing before."""
    pairs = zip(reversed(first), reversed(later), strict=False)
    n_same = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
    each = first[len(first) - n_same:]
    each = each[_tag_start(each, first):]
    return (first.removesuffix(each).strip(SPACES), each.strip(SPACES), later.removesuffix(each).strip(_BLANKS))


def _tag_start(each: str, first: str) -> int:
    """Where the first tag that is whole starts in `each`, an end of `first`."""
    if len(each) == len(first):
        return 0
    return next((i for i, c in enumerate(each) if c in "<[ \n"), 0)


def _marks(*texts: str) -> tuple[str, ...]:
    return tuple(text for text in texts if text)
