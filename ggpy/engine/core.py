"""The loop that serves requests: schedule, run, sample, emit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ggpy.backends.base import PAGE_TOKENS, Backend, StepSequence
from ggpy.engine.config import EngineConfig
from ggpy.engine.kv import PagePool, pages_for
from ggpy.engine.output import OutputText
from ggpy.engine.request import Event, FinishReason, Request
from ggpy.engine.runner import Float32, forward, iterate_outputs
from ggpy.engine.sampling import Sampler, SamplingMemory
from ggpy.engine.scheduler import Chunk, Scheduler
from ggpy.errors import ConfigError, GgpyError, OutOfMemoryError, PromptTooLongError, RequestError, shown
from ggpy.text import StreamDecoder, Tokenizer


@dataclass(frozen=True, slots=True)
class Generation:
    """What turns the logits of a live request into its tokens and text."""

    request: Request
    sampler: Sampler
    text: OutputText


class EngineCore:
    """Serves any number of requests on one backend. Nothing happens but in its methods, and one thread calls them: only
    `prepare` may be called by any.
    """

    def __init__(self, backend: Backend, tokenizer: Tokenizer, config: EngineConfig) -> None:
        n_pages = min(backend.n_pages)
        if pages_for(config.n_ctx) > n_pages:
            raise ConfigError(f"n_ctx={config.n_ctx}: the KV pool has {n_pages} pages of {PAGE_TOKENS} tokens, "
                              f"expected {pages_for(config.n_ctx)} or more")
        self.backend = backend
        self.tokenizer = tokenizer
        self.config = config
        self._sampling = SamplingMemory(backend.team)
        self._live: dict[int, Generation] = {}
        self.reset()

    def reset(self) -> None:
        """Forget all requests and pages, whatever state a failure left them in."""
        self.pool = PagePool(min(self.backend.n_pages))
        self.scheduler = Scheduler(
            self.pool, max_batch_tokens=min(self.config.max_batch_tokens, self.backend.max_tokens),
            max_running=min(self.config.max_running, self.backend.max_outputs), step_ms=self.config.step_ms)
        self._live.clear()

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def prepare(self, request: Request) -> Generation:
        """Make ready what `request` needs beside the model. Its samplers may have to be compiled: this can take long.

        Raises PromptTooLongError if its prompt leaves no room for an answer, RequestError for an empty prompt or a
        token that the model does not have.
        """
        self.check_tokens(request.prompt_tokens)
        if len(request.prompt_tokens) >= self.config.n_ctx:
            raise PromptTooLongError(
                f"the prompt has {len(request.prompt_tokens):,} tokens but the context holds {self.config.n_ctx:,}, "
                f"the answer included; shorten it{self.config.way_to_more}")
        return Generation(request, Sampler.for_tokenizer(request.params, self.tokenizer),
                          OutputText(StreamDecoder(self.tokenizer), request.params.stop))

    def add(self, generation: Generation) -> None:
        """Queue a new request."""
        self._live[generation.request.id] = generation
        self.scheduler.add(generation.request)

    def cancel(self, request_id: int) -> bool:
        """End a request now and free its pages; no event follows. False if it is not live."""
        generation = self._live.get(request_id)
        if generation is None:
            return False
        self._finish(generation.request, "cancelled")
        return True

    def step(self) -> list[Event]:
        """One forward pass; returns an event for each request that got a token. Without requests, nothing happens.

        After an exception only `reset` makes sense.
        """
        if not self.has_work:
            return []
        chunks = self.scheduler.schedule()
        assert chunks, "every request fits the pool when it is alone"
        start = time.perf_counter()
        logits = forward(self.backend, chunks)
        self.scheduler.pace.saw(sum(chunk.length for chunk in chunks), time.perf_counter() - start)
        self._sample(chunks, logits)
        events = []
        for chunk in chunks:
            if chunk.n_outputs:
                events.append(self._advance(self._live[chunk.request.id]))
            else:
                chunk.request.num_computed += chunk.length
        return events

    def logits(self, tokens: Sequence[int], n_outputs: int, is_wanted: Callable[[], bool] = lambda: True) -> Float32:
        """Logits (n_outputs, n_vocab) of the last `n_outputs` tokens, on pages that are held only meanwhile.

        If pages are short, running requests give way and resume afterwards. When they are not wanted any more, the rows
        that are left stay as they are. Raises PromptTooLongError or RequestError for tokens that cannot be computed,
        OutOfMemoryError if there is no memory for the result.
        """
        return self._outputs(tokens, (n_outputs, self.backend.n_vocab), self.backend.forward, is_wanted)

    def hidden(self, tokens: Sequence[int], n_outputs: int, is_wanted: Callable[[], bool] = lambda: True) -> Float32:
        """Hidden states (n_outputs, n_embd) of the last `n_outputs` tokens, likewise."""
        return self._outputs(tokens, (n_outputs, self.backend.n_embd), self.backend.hidden, is_wanted)

    def _outputs(self, tokens: Sequence[int], shape: tuple[int, int],
                 compute: Callable[[list[StepSequence]], Float32], is_wanted: Callable[[], bool]) -> Float32:
        """The outputs of the last tokens."""
        self.check_tokens(tokens)
        if len(tokens) > self.config.n_ctx:
            raise PromptTooLongError(f"there are {len(tokens):,} tokens but the context holds {self.config.n_ctx:,}; "
                                     f"take fewer{self.config.way_to_more}")
        result = empty_float32(shape)
        self.scheduler.make_room(pages_for(len(tokens)))
        pages = self.pool.allocate(pages_for(len(tokens)))
        try:
            n_done = 0
            for part in iterate_outputs(self.backend, tokens, pages, len(result), compute):
                result[n_done : n_done + len(part)] = part
                n_done += len(part)
                if not is_wanted():
                    break
        finally:
            self.pool.release(pages)
        return result

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise RequestError unless there are tokens and the model has all of them."""
        if not len(tokens):
            raise RequestError("the prompt has no tokens; expected one at least")
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < self.backend.n_vocab:
                raise RequestError(f"token {shown(token)} is not in the vocabulary; expected 0 to "
                                   f"{self.backend.n_vocab - 1:,}")

    def _sample(self, chunks: Sequence[Chunk], logits: Float32) -> None:
        """Choose the tokens that follow chunks with an output."""
        ready = [self._live[chunk.request.id] for chunk in chunks if chunk.n_outputs]
        self._sampling.choose([
            (generation.sampler, row, generation.request.tokens)
            # a model may have more rows than its tokenizer has tokens
            for generation, row in zip(ready, logits[:, : self.tokenizer.n_vocab], strict=True)])

    def _advance(self, generation: Generation) -> Event:
        """Take the token chosen for a request whose others are computed; ends the request if that is the last."""
        request, text = generation.request, generation.text
        num_cached = request.num_cached or 0
        try:
            token = generation.sampler.chosen_after(request.tokens)
        except GgpyError as error:      # one request's trouble is not the others'
            request.error = error
            self._finish(request, "error")
            return Event(request.id, (), text.finish(), "error", error, num_cached)
        request.num_computed = len(request.tokens)
        request.tokens.append(token)
        is_end = token in self.tokenizer.eog_ids
        new_text = "" if is_end else text.push(token)
        reason = self._finish_reason(request, is_end=is_end or text.stopped)
        if reason is not None:
            if not text.stopped:
                new_text += text.finish()
            self._finish(request, reason)
        return Event(request.id, (token,), new_text, reason, None, num_cached)

    def _finish_reason(self, request: Request, *, is_end: bool) -> FinishReason | None:
        if is_end:
            return "stop"
        is_full = len(request.tokens) >= self.config.n_ctx or request.num_generated == request.params.max_tokens
        return "length" if is_full else None

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self.scheduler.remove(request)
        del self._live[request.id]


def empty_float32(shape: tuple[int, int]) -> Float32:
    """An array that is not filled yet. Raises OutOfMemoryError."""
    try:
        return np.empty(shape, np.float32)
    except MemoryError as error:
        raise OutOfMemoryError(f"{4 * math.prod(shape) / 1e9:,.1f} GB for {shape[0]:,} rows of {shape[1]:,} numbers "
                               "are not there; ask for fewer positions") from error
