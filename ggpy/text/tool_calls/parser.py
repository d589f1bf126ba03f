"""The answer of a model, taken apart as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ggpy.text.reasoning import ReasoningFormat, ReasoningTags
from ggpy.text.tool_calls.events import Answer, Event
from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.output import Output, new_call_id
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList


class AnswerParser:
    """Turns the text of one answer into events: content, reasoning and calls of tools.

    Without `tool_format` there are no calls, without `reasoning` no thoughts. `is_open` says that the prompt has opened
    the thoughts. The events are the same however the text is cut into pieces, but for where their texts are cut. No
    text is an error: what is not a call is content. A call whose arguments break off ends incomplete.
    """

    def __init__(
        self, tool_format: ToolFormat | None = None, tools: Sequence[Mapping[str, Any]] | None = None, *,
        reasoning: ReasoningTags | None = None, reasoning_format: ReasoningFormat = "auto", is_open: bool = False,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        self._format = tool_format
        self._tools = ToolList(tools)
        self._tags = reasoning
        self._shows = {"none": (True, False), "deepseek-legacy": (True, True)}.get(reasoning_format, (False, True))
        self._is_open = is_open
        self._scanner = Scanner()
        self._out = Output(new_id)
        self._steps = self._read()
        self._is_reasoning = is_open
        self._is_done = False
        self._go_on()

    @property
    def is_reasoning(self) -> bool:
        """Whether what has come so far ends within thoughts."""
        return self._is_reasoning

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
        if self._tags is not None:
            yield from self._read_reasoning(self._tags)
        if self._format is not None:
            yield from self._format.read(self._scanner, self._out, self._tools)
        else:
            yield from self._scanner.rest(self._out.content)

    def _read_reasoning(self, tags: ReasoningTags) -> Steps[None]:
        s, out = self._scanner, self._out
        in_content, in_reasoning = self._shows
        begin = ""
        if not self._is_open:
            spaces = yield from s.spaces()
            tag = yield from s.take(tags.begin, tags.end)
            if tag is None or (tag == tags.end and in_content):
                out.content(spaces + (tag or ""))
                return
            if tag == tags.end:         # thoughts that there are none of
                out.reasoning_tag()
                return
            begin = spaces + tag

        def emit(text: str) -> None:
            if in_reasoning:
                out.reasoning(text)
            if in_content:
                out.content(text)

        self._is_reasoning = True
        out.reasoning_tag()
        if in_content:
            out.shown_tag(begin)
        end = yield from s.until((tags.end,), emit)
        self._is_reasoning = False
        if in_content:
            out.shown_tag(end or "")
        else:
            out.reasoning_tag()


def parse_answer(
    text: str, tool_format: ToolFormat | None = None, tools: Sequence[Mapping[str, Any]] | None = None, *,
    reasoning: ReasoningTags | None = None, reasoning_format: ReasoningFormat = "auto", is_open: bool = False,
    new_id: Callable[[], str] = new_call_id,
) -> Answer:
    """A whole answer, taken apart as by AnswerParser."""
    parser = AnswerParser(tool_format, tools, reasoning=reasoning, reasoning_format=reasoning_format, is_open=is_open,
                          new_id=new_id)
    return Answer.of([*parser.feed(text), *parser.finish()])
