"""Answers taken apart: content, reasoning and calls, however the text is cut into pieces."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggpy.text.reasoning import THINK
from ggpy.text.tool_calls import (
    FORMATS,
    AnswerParser,
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    ParsedAnswer,
    ToolFormat,
    parse_answer,
)

BY_NAME = {each.name: each for each in FORMATS}


def numbered() -> Callable[[], str]:
    """Ids of calls that tests can know."""
    numbers = itertools.count()
    return lambda: f"id{next(numbers)}"


def parse(text: str, tool_format: ToolFormat | None, **options: Any) -> ParsedAnswer:
    return parse_answer(text, tool_format, new_id=numbered(), **options)


def parse_pieces(pieces: list[str], tool_format: ToolFormat | None, **options: Any) -> ParsedAnswer:
    parser = AnswerParser(tool_format, new_id=numbered(), **options)
    events: list[Event] = [event for piece in pieces for event in parser.feed(piece)]
    return ParsedAnswer.of([*events, *parser.finish()])


@pytest.mark.parametrize(("style", "content", "reasoning"), [
    ("auto", "Hi", "hm"),
    ("deepseek", "Hi", "hm"),
    ("none", "<think>\nhm\n</think>\n\nHi", ""),
    ("deepseek-legacy", "<think>\nhm\n</think>\n\nHi", "hm"),
])
def test_reasoning_is_split_from_the_content_as_asked(style: Any, content: str, reasoning: str) -> None:
    """Whitespace beside hidden tags goes with them; shown tags stand in the text as the model wrote it."""
    answer = parse("<think>\nhm\n</think>\n\nHi", None, reasoning=THINK, reasoning_format=style)
    assert (answer.content, answer.reasoning) == (content, reasoning)


def test_reasoning_that_the_prompt_has_opened_begins_at_once() -> None:
    """A prompt that ends in the opening tag leaves only the closing one to the answer."""
    assert THINK.is_open("<|im_start|>assistant\n<think>\n")
    answer = parse("hm</think>Hi", None, reasoning=THINK, is_open=True)
    assert (answer.content, answer.reasoning) == ("Hi", "hm")


def test_a_call_is_known_before_its_arguments_are_complete() -> None:
    """Name and id come first, then the arguments as they arrive."""
    parser = AnswerParser(BY_NAME["hermes"], new_id=numbered())
    assert parser.feed("Wait.\n<tool_ca") == [Content("Wait.")]
    assert parser.feed('ll>\n{"name": "f", "arguments": {"a"') == [
        CallBegin(0, "id0", "f"), CallArguments(0, '{"a"')]
    assert parser.feed(": 1}}") == [CallArguments(0, ": 1}"), CallEnd(0)]
    assert parser.feed("\n</tool_call>") == parser.finish() == []


PARTS = ["f", "a", " ", "\n", "{", "}", "[", "]", "(", ")", '"', "'", ",", ":", "=", "1", "true", "\\", "\\u00e9", "é",
         '{"name": "f", "arguments": ', '{"a": "b"}', "name", "call:", "<think>", "</think>", "```json", "<", "to=f"]


@given(st.data())
def test_no_text_is_an_error_and_pieces_change_nothing(data: st.DataObject) -> None:
    """Whatever a model writes is content, reasoning or calls, the same in any pieces."""
    tool_format = data.draw(st.sampled_from(FORMATS))
    tags = [*tool_format.begins, *tool_format.marks, *getattr(tool_format, "separators", ())]
    parts = data.draw(st.lists(st.sampled_from(PARTS + tags * 3) | st.text(max_size=3), max_size=20))
    text = "".join(parts)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    pieces = [text[a:b] for a, b in itertools.pairwise([0, *cuts, len(text)])]
    answer = parse(text, tool_format, reasoning=THINK)
    assert parse_pieces(pieces, tool_format, reasoning=THINK) == answer
    if not answer.calls and "think>" not in text and not tool_format.dropped and tool_format.name not in SILENT:
        assert answer.content == text


SILENT = ("harmony", "functionary")     # texts without calls have headers too, which are no content
