"""OpenAI's objects of chats, with llama-server's further fields."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ggpy.engine.probabilities import TokenProbability
from ggpy.server.chat.core import ChatAnswer, ChatDelta
from ggpy.server.jobs.completion import CompletionOptions, final_object
from ggpy.server.jobs.generation import Answer
from ggpy.server.jobs.probabilities import probability_objects
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web.replies import FINGERPRINT
from ggpy.text.tool_calls import CallArguments, CallBegin, Content, Event, Reasoning, ToolCall

_ALPHABET = (string.ascii_letters + string.digits).encode()
_LETTERS = bytes(_ALPHABET[i % len(_ALPHABET)] for i in range(256))     # one for each byte


def new_id() -> str:
    """One such as llama-server's."""
    return "chatcmpl-" + secrets.token_bytes(32).translate(_LETTERS).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyOptions:
    """What a request wants of its reply."""

    model: LoadedModel
    has_usage: bool = False                     # in a chunk of its own
    has_timings: bool = False                   # in every chunk
    has_progress: bool = False                  # while the prompt is read
    verbose: CompletionOptions | None = None    # of the native object beside OpenAI's; None: there is none
    has_probabilities: bool = False
    are_after_sampling: bool = False
    id: str = field(default_factory=new_id)
    created: int = field(default_factory=lambda: int(time.time()))

    def head(self, kind: str) -> dict[str, Any]:
        """What every object of the reply has."""
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model.name,
                "system_fingerprint": FINGERPRINT}

    def logprobs(self, found: Sequence[TokenProbability]) -> dict[str, Any]:
        objects = probability_objects(list(found), self.model.tokenizer, is_post=self.are_after_sampling)
        return {"content": objects, "refusal": None}

    def native(self, answer: Answer) -> dict[str, Any]:
        """The native object, as a field; {} if it is not wanted."""
        return {} if self.verbose is None else {"__verbose": final_object(self.model, answer, self.verbose)}


def completion(answers: Sequence[ChatAnswer], options: ReplyOptions) -> dict[str, Any]:
    """The whole reply."""
    choices = []
    for found in answers:
        choice = {"index": found.answer.index, "message": message(found), "finish_reason": found.finish_reason}
        if options.has_probabilities:
            choice["logprobs"] = options.logprobs(found.probabilities)
        choices.append(choice)
    first = answers[0].answer
    n_reasoning = sum(found.n_reasoning for found in answers)
    return {**options.head("chat.completion"), "choices": choices, **options.native(first),
            "usage": usage([found.answer for found in answers], n_reasoning), "timings": first.timings()}


def message(found: ChatAnswer) -> dict[str, Any]:
    """What the assistant said. There is a content but beside calls alone."""
    parsed = found.parsed
    has_content = bool(parsed.content or not parsed.calls)
    whole: dict[str, Any] = {"role": "assistant", "content": parsed.content if has_content else None}
    if parsed.reasoning:
        whole["reasoning_content"] = parsed.reasoning
    if parsed.calls:
        whole["tool_calls"] = [call_object(call) for call in parsed.calls]
    return whole


def call_object(call: ToolCall) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def usage(answers: Sequence[Answer], n_reasoning: int = 0) -> dict[str, Any]:
    """Tokens of all answers to one prompt, of which `n_reasoning` were reasoning."""
    n_prompt, n_generated = answers[0].n_prompt, sum(len(answer.tokens) for answer in answers)
    return {"prompt_tokens": n_prompt, "completion_tokens": n_generated, "total_tokens": n_prompt + n_generated,
            "prompt_tokens_details": answers[0].cached(),
            "completion_tokens_details": {"reasoning_tokens": n_reasoning}}


class ChunkWriter:
    """The chunks of a stream of answers."""

    def __init__(self, options: ReplyOptions, n: int) -> None:
        self._options = options
        self._n_left = n
        self._waiting: dict[int, list[TokenProbability]] = {}   # by answer: of text that is still held back
        self._ended: dict[int, Answer] = {}
        self._n_reasoning = 0

    @property
    def is_done(self) -> bool:
        """Whether all answers have ended."""
        return self._n_left == 0

    def chunks(self, delta: ChatDelta) -> Iterator[dict[str, Any]]:
        """Those that `delta` brings."""
        options, answer = self._options, delta.answer
        is_progress = options.has_progress and not delta.tokens and not delta.is_last
        if answer.index not in self._waiting and (is_progress or delta.tokens or delta.is_last):
            self._waiting[answer.index] = []
            first = self._chunk(answer.index, {"role": "assistant", "content": None})
            yield {**first, **self._progress(delta)} if is_progress else first
        elif is_progress:
            yield {**self._chunk(answer.index, {}), **self._progress(delta)}
        if answer.index in self._waiting:
            self._waiting[answer.index] += delta.probabilities
        for part in deltas(delta.events):
            yield self._chunk(answer.index, part, answer)
        if delta.is_last:
            yield from self._end(delta)

    def _end(self, delta: ChatDelta) -> Iterator[dict[str, Any]]:
        """What ends one answer, and with the last of them the stream."""
        options, answer = self._options, delta.answer
        self._n_left -= 1
        self._n_reasoning += delta.n_reasoning
        self._ended[answer.index] = answer
        last = self._chunk(answer.index, {}, delta.answer, delta.finish_reason)
        last |= options.native(answer)
        has_usage = options.has_usage and self.is_done
        if not has_usage:
            last["timings"] = answer.timings()
        yield last
        if has_usage:
            answers = [self._ended[index] for index in sorted(self._ended)]
            yield {**options.head("chat.completion.chunk"), "choices": [], "usage": usage(answers, self._n_reasoning),
                   "timings": answer.timings()}

    def _chunk(self, index: int, part: dict[str, Any], answer: Answer | None = None,
               finish_reason: str | None = None) -> dict[str, Any]:
        choice: dict[str, Any] = {"index": index, "delta": part, "finish_reason": finish_reason}
        if self._options.has_probabilities and answer is not None:
            choice["logprobs"] = self._options.logprobs(self._waiting[index])
            self._waiting[index] = []
        chunk = {**self._options.head("chat.completion.chunk"), "choices": [choice]}
        if self._options.has_timings and answer is not None:
            chunk["timings"] = answer.timings()
        return chunk

    def _progress(self, delta: ChatDelta) -> dict[str, Any]:
        return {"prompt_progress": delta.answer.progress(delta.n_read)}


def deltas(events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """The `delta` of chunks that tell `events`. A call begins with its first arguments."""
    calls: dict[int, dict[str, Any]] = {}
    for event in events:
        if isinstance(event, CallArguments):
            call = calls.setdefault(event.index, {"index": event.index, "function": {}})
            call["function"]["arguments"] = call["function"].get("arguments", "") + event.text
        elif isinstance(event, CallBegin):
            calls[event.index] = {"index": event.index, "id": event.id, "type": "function",
                                  "function": {"name": event.name, "arguments": ""}}
        elif isinstance(event, Content | Reasoning):
            yield from call_deltas(calls)
            yield {"content" if isinstance(event, Content) else "reasoning_content": event.text}
    yield from call_deltas(calls)


def call_deltas(calls: dict[int, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """A delta for each of `calls`, which then are no more."""
    for index in sorted(calls):
        yield {"tool_calls": [calls.pop(index)]}
