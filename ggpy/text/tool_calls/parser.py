"""The answer of a model, taken apart as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, Unpack

from ggpy.text.reasoning import ReasoningFormat, ReasoningTags
from ggpy.text.tool_calls.events import Event, ParsedAnswer
from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.output import Output, new_call_id
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

_SHOWN = ("none", "deepseek-legacy")        # reasoning stands in the content


class ParserOptions(TypedDict, total=False):
    """Options of taking an answer apart."""

    reasoning: ReasoningTags | None
    reasoning_format: ReasoningFormat
    is_open: bool
    new_id: Callable[[], str] | None


class AnswerParser:
    """Turns the text of one answer into events: content, reasoning and calls of tools.

    Without `tool_format` there are no calls, without the tags of `reasoning` there is none. `is_open` says that the
    prompt has opened it. The events are the same however the text is cut into pieces, but for where their texts are
    cut. No text is an error: what is not a call is content. A call whose arguments break off ends incomplete. `new_id`
    makes ids for calls to which the model gives none; without it, the format does.
    """

    def __init__(
        self, tool_format: ToolFormat | None = None, tools: Sequence[Mapping[str, Any]] | None = None, *,
        reasoning: ReasoningTags | None = None, reasoning_format: ReasoningFormat = "auto", is_open: bool = False,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._format = tool_format
        self._tools = ToolList(tools)
        self._tags = reasoning
        self._is_open = is_open
        self._scanner = Scanner()
        self._out = Output(new_id or (tool_format.new_id if tool_format else new_call_id),
                           in_reasoning=reasoning_format != "none", in_content=reasoning_format in _SHOWN)
        self._steps = self._read()
        self._is_done = False

    @property
    def is_reasoning(self) -> bool:
        """Whether what has come so far ends within reasoning."""
        return self._out.is_in_reasoning

    def feed(self, text: str) -> list[Event]:
        """The events that are certain with the next piece of text."""
        self._scanner.feed(text)
        return self._go_on()

    def finish(self) -> list[Event]:
        """The rest of the events: the answer has ended."""
        self._scanner.is_ended = True
        return self._go_on()

    def _go_on(self) -> list[Event]:
        if not self._is_done:
            try:
                next(self._steps)
            except StopIteration:
                self._is_done = True
                self._out.finish()
        return self._out.events()

    def _read(self) -> Steps[None]:
        s, out = self._scanner, self._out
        if self._tags is not None and not (self._format and self._format.reads_reasoning):
            yield from self._read_reasoning(self._tags)
        if self._format is None:
            yield from s.rest(out.content)
            return
        if self._format.reads_reasoning and self._is_open:
            out.begin_reasoning()
        yield from self._format.read(s, out, self._tools)

    def _read_reasoning(self, tags: ReasoningTags) -> Steps[None]:
        s, out = self._scanner, self._out
        begin = ""
        if not self._is_open:
            begin = yield from s.spaces()
            tag = yield from s.take(tags.begin, tags.end)
            if tag is None:
                out.content(begin)
                return
            begin += tag
            if tag == tags.end:         # of reasoning that there is none of
                out.end_reasoning(begin)
                return
        out.begin_reasoning(begin)
        end = yield from s.until((tags.end, *self._calls_behind_reasoning()), out.reasoning)
        if end is not None and end != tags.end:         # the call that ends it begins with its last tag
            assert self._format is not None
            n_call = len(self._format.begins[0])
            s.unread(n_call)
            end = end[:-n_call]
        if end is not None:
            out.end_reasoning(end)

    def _calls_behind_reasoning(self) -> tuple[str, ...]:
        """What calls begin with behind reasoning, where that is not what content does."""
        if self._format is None or self._format.call_reasoning is None:
            return ()
        return (self._format.call_reasoning[1] + self._format.begins[0],)


def parse_answer(text: str, tool_format: ToolFormat | None = None, tools: Sequence[Mapping[str, Any]] | None = None,
                 **options: Unpack[ParserOptions]) -> ParsedAnswer:
    """A whole answer, taken apart as by AnswerParser."""
    parser = AnswerParser(tool_format, tools, **options)
    return ParsedAnswer.of([*parser.feed(text), *parser.finish()])
