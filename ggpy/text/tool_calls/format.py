"""What formats of tool calls have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from ggpy.text.tool_calls.output import Output, new_call_id
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList


@dataclass(frozen=True, slots=True)
class ArgumentTags:
    """An argument is `key_begin key text_begin text value_end`, or `key_begin key json_begin JSON value_end`."""

    key_begin: str
    text_begin: str
    json_begin: str
    value_end: str


@dataclass(frozen=True, slots=True)
class CallShape:
    """Calls as a grammar has to write them: `begin {name_key: name, arguments_key: arguments} end`.

    With `between`, several stand between one `begin` and `end`, that between them. With `name_end`, a call is
    `name_begin name name_end arguments arguments_end`; `is_numbered` puts ":0", ":1" and so on behind names, and with
    `id_end` an id of the model's own and that stand in front of them. With `tags`, arguments stand one by one between
    these, texts as they are and all else as JSON.
    """

    begin: str = ""
    end: str = ""
    between: str | None = None
    name_key: str = "name"
    arguments_key: str = "arguments"
    name_begin: str = ""
    name_end: str | None = None
    arguments_end: str = ""
    is_numbered: bool = False
    id_end: str = ""
    tags: ArgumentTags | None = None

    def texts(self) -> tuple[str, ...]:
        """The texts that stand in every call, but for whitespace between tags, which is the model's own affair."""
        keys = ("name_key", "arguments_key") if self.name_end is None else ()
        values = (self.begin, self.end, self.name_begin, self.id_end, self.name_end, self.arguments_end,
                  *(f'"{getattr(self, key)}"' for key in keys))
        return tuple(text for each in values if each and (text := each if self.tags is None else each.strip()))


@dataclass(frozen=True, slots=True)
class CallOpening:
    """How a call begins whose arguments no grammar describes: `before`, the name, `behind`."""

    before: str
    behind: str
    has_json: bool = False      # the arguments follow as JSON, and nothing else


@dataclass(frozen=True, kw_only=True)
class ToolFormat(ABC):
    """How a family of models writes calls of tools.

    `begins`, at least one, are the texts with which calls begin; what stands before one is content. `marks` are all
    texts that may be control tokens and that the parser has to see, so that they must be decoded. `shape` is None if
    the arguments stand neither in JSON nor between tags.
    """

    name: str
    begins: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    shape: CallShape | None = None
    opening: CallOpening | None = None      # for want of a shape
    call_reasoning: tuple[str, str] | None = None   # around reasoning in front of calls, if not the template's tags
    told_by: tuple[str, ...] = ()   # what all stands in templates that describe the format; (): the first begin
    dropped: tuple[str, ...] = ()   # tags that are no part of the content
    reads_reasoning: bool = False   # reasoning is told by the format's own rules
    content_begin: str = ""         # what stands before all content, if anything does
    new_id: Callable[[], str] = new_call_id     # an id as the model's template takes it

    @property
    def triggers(self) -> tuple[str, ...]:
        """Texts behind which the grammar of `shape` holds, its `begin` being there; () if nothing announces a call.

        Whitespace between tags is the model's own affair, unless a call has to come.
        """
        return (self.shape.begin,) if self.shape is not None and self.shape.begin and self.shape.tags is None else ()

    @property
    def traces(self) -> tuple[str, ...]:
        """Texts that all stand in templates for this format, even if they write no calls; () if nothing tells."""
        return self.told_by or self.begins[:1]

    def read(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        """Read an answer to its end."""
        while True:
            begin = yield from s.until((*self.begins, *self.dropped), out.content)
            if begin is None:
                return
            if begin in self.dropped:
                continue
            s.save(len(begin))
            is_good = yield from self.read_calls(begin, s, out, tools)
            unread = s.saved()
            if out.is_in_call:
                out.end(is_complete=False)
            elif not is_good:
                out.content(unread)

    @abstractmethod
    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        """Read what stands behind `begin`; whether it was calls. If not, what was read since the last complete call,
        or since `s.save` was called last, is content."""
