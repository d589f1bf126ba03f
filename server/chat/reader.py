"""Takes one answer apart as its tokens arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ggpy.engine.probabilities import TokenProbability
from ggpy.server.jobs.generation import Delta
from ggpy.text import StreamDecoder, Tokenizer
from ggpy.text.reasoning import ReasoningFormat
from ggpy.text.tool_calls import AnswerParser, AnswerStyle, CallBegin, Content, Event, ToolFormat


class AnswerReader:
    """The events of one answer of a model that answers in `style`.

    `is_open` says that the prompt ends in reasoning, `is_closed` that it ends behind some: what the model puts between
    it and its answer is no part of it. Control tokens are no text, but for those that tags of reasoning and marks of
    calls are made of; with `has_controls`, all of them are in the engine's texts already.
    """

    def __init__(self, tokenizer: Tokenizer, style: AnswerStyle, tool_format: ToolFormat | None,
                 tools: Sequence[Mapping[str, Any]], *, reasoning_format: ReasoningFormat = "auto",
                 is_open: bool = False, is_closed: bool = False, has_controls: bool = False) -> None:
        marks = tool_format.marks if tool_format is not None else ()
        self._tokenizer = tokenizer
        texts = () if has_controls else (*marks, style.reasoning.begin, style.reasoning.end)
        self._shown = control_tokens(tokenizer, texts)
        self._text = ShownText(tokenizer, self._shown)
        self._parser = AnswerParser(tool_format, tools, reasoning=style.reasoning, reasoning_format=reasoning_format,
                                    is_open=is_open)
        self._parser.feed("")
        self.n_reasoning = 0        # tokens of reasoning
        self._held: list[TokenProbability] = []
        self._has_begun = False     # something is certain
        self._is_at_tag = is_closed
        self.has_calls = False

    @property
    def is_reasoning(self) -> bool:
        """Whether what has come so far ends within reasoning."""
        return self._parser.is_reasoning

    def read(self, delta: Delta) -> list[Event]:
        """The events that are certain with `delta`, and all of them with the last one."""
        was_reasoning = self._parser.is_reasoning
        text = self._text.read(delta)
        if self._is_at_tag and text:
            text = text.lstrip()
            self._is_at_tag = not text
        events = self._parser.feed(text) if text else []
        if was_reasoning or self._parser.is_reasoning:
            self.n_reasoning += len(delta.tokens)
            self._held = [] if self._parser.is_reasoning else self._behind_reasoning(delta, events)
        else:
            self._held += delta.probabilities
        if delta.is_last:
            events += self._parser.finish()
        self._has_begun = self._has_begun or bool(events) or delta.is_last
        return self._noted(events)

    def probabilities(self) -> tuple[TokenProbability, ...]:
        """Those of tokens that were read since the last time and say something: no reasoning, no end.

        While all that came may be the tag of reasoning, its tokens are held back.
        """
        if not self._has_begun or not self._held:
            return ()
        found = tuple(each for each in self._held if each.token not in self._tokenizer.eog_ids)
        self._held.clear()
        return found

    def _behind_reasoning(self, delta: Delta, events: list[Event]) -> list[TokenProbability]:
        """The probabilities of `delta`, which ends reasoning, that are of the content that begins in it."""
        n_left = sum(len(event.text.encode()) for event in events if isinstance(event, Content))
        found: list[TokenProbability] = []
        for each in reversed(delta.probabilities):
            if n_left <= 0:
                break
            n_left -= len(self._tokenizer.token_bytes(each.token, special=False))
            found.insert(0, each)
        return found

    def insert(self, text: str) -> list[Event]:
        """Take `text` for what the model has written; what it was about to write is forgotten."""
        self._text = ShownText(self._tokenizer, self._shown)
        return self._noted(self._parser.feed(text))

    def _noted(self, events: list[Event]) -> list[Event]:
        self.has_calls = self.has_calls or any(isinstance(event, CallBegin) for event in events)
        return events


class ShownText:
    """The text of an answer with the control tokens `shown` in it, as far as the engine has released it."""

    def __init__(self, tokenizer: Tokenizer, shown: Mapping[int, str]) -> None:
        self._shown = shown
        self._decoder = StreamDecoder(tokenizer)
        self._marks: deque[tuple[int, str]] = deque()       # where in the text they stand
        self._n_decoded = 0
        self._n_told = 0

    def read(self, delta: Delta) -> str:
        """What is certain with `delta`."""
        if not self._shown:
            return delta.text
        for token in delta.tokens:
            if token in self._shown:
                self._marks.append((self._n_decoded, self._shown[token]))
            else:
                self._n_decoded += len(self._decoder.push(token))
        text, taken = delta.text, 0
        pieces: list[str] = []
        while self._marks and self._marks[0][0] <= self._n_told + len(text):
            place, mark = self._marks.popleft()
            pieces += text[taken : place - self._n_told], mark
            taken = max(taken, place - self._n_told)
        self._n_told += len(text)
        return "".join([*pieces, text[taken:]])


def control_tokens(tokenizer: Tokenizer, texts: Iterable[str]) -> dict[int, str]:
    """The control tokens that `texts` spell."""
    found: dict[int, str] = {}
    for text in texts:
        for first, last in tokenizer.control_spans(text):
            token = tokenizer.token_id(text[first:last])
            if token is not None:
                found[token] = text[first:last]
    return found
