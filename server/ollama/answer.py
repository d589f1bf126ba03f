"""Ollama's answers to /api/chat and /api/generate: what events add to them, as lines or as one reply."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from ggpy.server.chat.arguments import read_arguments
from ggpy.server.chat.core import PreparedChat, stream_chat
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.ollama.lines import Line, Stopwatch, logprob_objects, now
from ggpy.server.web.replies import json_response
from ggpy.text.tool_calls import CallArguments, CallBegin, CallEnd, Content, Event, Reasoning


@dataclass(slots=True)
class AnswerPart:
    """What events add to an answer."""

    content: str = ""
    reasoning: str = ""
    calls: list[Line] = dataclasses.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.content or self.reasoning or self.calls)


class CallCollector:
    """Makes whole calls of their pieces: Ollama's clients get each in one."""

    def __init__(self) -> None:
        self._begun: CallBegin | None = None
        self._arguments = ""

    def part(self, events: Iterable[Event]) -> AnswerPart:
        """What `events` say that is whole."""
        part = AnswerPart()
        for event in events:
            match event:
                case Content(text):
                    part.content += text
                case Reasoning(text):
                    part.reasoning += text
                case CallBegin():
                    self._begun, self._arguments = event, ""
                case CallArguments(_, text):
                    self._arguments += text
                case CallEnd(_, is_complete):
                    part.calls.append(self._call(is_complete))
        return part

    def _call(self, is_complete: bool) -> Line:
        assert self._begun is not None, "a call begins before it ends"
        arguments = read_arguments(self._arguments) if is_complete else {}
        return {"id": self._begun.id, "function": {"index": self._begun.index, "name": self._begun.name,
                                                   "arguments": arguments}}


@dataclass(frozen=True, slots=True)
class Piece:
    """What came to an answer; the last piece has what the last line tells, too."""

    part: AnswerPart
    logprobs: list[Line]
    final: Line | None = None
    tokens: tuple[int, ...] = ()        # of prompt and answer, with the last


async def pieces(model: LoadedModel, chat: PreparedChat, watch: Stopwatch) -> AsyncGenerator[Piece, None]:
    """The answer to `chat` as it comes."""
    calls = CallCollector()
    async with aclosing(stream_chat(model, chat)) as deltas:
        async for delta in deltas:
            part = calls.part(delta.events)
            logprobs = logprob_objects(delta.probabilities, model.tokenizer)
            if not delta.is_last:
                if part or logprobs:
                    yield Piece(part, logprobs)
                continue
            reason = "length" if delta.finish_reason == "length" else "stop"
            yield Piece(part, logprobs, {"done": True, "done_reason": reason, **watch.metrics(delta.answer)},
                        (*chat.job.tokens, *delta.answer.tokens))


def head(name: str) -> Line:
    """How every line begins."""
    return {"model": name, "created_at": now()}


def tail(logprobs: list[Line]) -> Line:
    return {"done": False, **({"logprobs": logprobs} if logprobs else {})}


async def collected(lines: AsyncGenerator[Line, None], join: Any) -> web.Response:
    """The reply in one piece: the last line, to which `join` adds each line before."""
    found: list[Line] = []
    async with aclosing(lines):
        async for line in lines:
            found.append(line)
    last = found[-1]
    join(last, found[:-1])
    logprobs = [one for line in found for one in line.get("logprobs", ())]
    return json_response({**last, "logprobs": logprobs} if logprobs else last)
