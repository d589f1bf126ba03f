"""The loop that serves requests: schedule, run, sample, emit."""

from __future__ import annotations

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
from ggpy.errors import ConfigError, GgpyError, PromptTooLongError, RequestError
from ggpy.text import StreamDecoder, Tokenizer


@dataclass(frozen=True, slots=True)
class Generation:
    """What turns the logits of a live request into its tokens and text."""

    request: Request
    sampler: Sampler
    text: OutputText


class EngineCore:
    """Serves any number of requests on one backend. Not thread-safe; nothing happens but in `step`."""

    def __init__(self, backend: Backend, tokenizer: Tokenizer, config: EngineConfig) -> None:
        if pages_for(config.n_ctx) > backend.n_pages:
            raise ConfigError(f"n_ctx={config.n_ctx}: the KV pool has {backend.n_pages} pages of {PAGE_TOKENS} tokens, "
                              f"expected {pages_for(config.n_ctx)} or more")
        self.backend = backend
        self.tokenizer = tokenizer
        self.config = config
        self.pool = PagePool(backend.n_pages)
        self.scheduler = Scheduler(
            self.pool, max_batch_tokens=min(config.max_batch_tokens, backend.max_tokens),
            max_running=min(config.max_running, backend.max_outputs), step_ms=config.step_ms)
        self._live: dict[int, Generation] = {}
        self._sampling = SamplingMemory(backend.team)

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    def add(self, request: Request) -> None:
        """Queue a new request.

        Raises PromptTooLongError if its prompt leaves no room for an answer, RequestError for an empty prompt or a
        token that the model does not have.
        """
        self.check_tokens(request.prompt_tokens)
        if len(request.prompt_tokens) >= self.config.n_ctx:
            raise PromptTooLongError(
                f"the prompt has {len(request.prompt_tokens):,} tokens but the context holds {self.config.n_ctx:,}, "
                f"the answer included; shorten it{self.config.way_to_more}")
        self._live[request.id] = Generation(
            request, Sampler.for_tokenizer(request.params, self.tokenizer),
            OutputText(StreamDecoder(self.tokenizer), request.params.stop))
        self.scheduler.add(request)

    def cancel(self, request_id: int) -> bool:
        """End a request now and free its pages; no event follows. False if it is not live."""
        generation = self._live.get(request_id)
        if generation is None:
            return False
        self._finish(generation.request, "cancelled")
        return True

    def step(self, emit: Callable[[Event], None]) -> int:
        """One forward pass, of which each request that got a token is told at once: `emit` is called with its event.

        Returns how many tokens were computed; 0 only if there is nothing to do. An exception from outside, such as
        that of Ctrl-C, may end it halfway: what was emitted stands, the rest is computed again in the next step.
        """
        chunks = self.scheduler.schedule()
        if not chunks:
            return 0
        n_rows = sum(chunk.length for chunk in chunks)
        start = time.perf_counter()
        logits = forward(self.backend, chunks)
        self.scheduler.pace.saw(n_rows, time.perf_counter() - start)
        self._sample(chunks, logits)
        for chunk in chunks:
            if chunk.n_outputs:
                emit(self._advance(self._live[chunk.request.id]))
            else:
                chunk.request.num_computed += chunk.length
        return n_rows

    def logits(self, tokens: Sequence[int], n_outputs: int) -> Float32:
        """Logits (n_outputs, n_vocab) of the last `n_outputs` tokens, on pages that are held only meanwhile.

        If pages are short, running requests give way and resume afterwards. Raises PromptTooLongError or RequestError
        for tokens that cannot be computed.
        """
        return self._outputs(tokens, np.empty((n_outputs, self.backend.n_vocab), np.float32), self.backend.forward)

    def hidden(self, tokens: Sequence[int], n_outputs: int) -> Float32:
        """Hidden states (n_outputs, n_embd) of the last `n_outputs` tokens, likewise."""
        return self._outputs(tokens, np.empty((n_outputs, self.backend.n_embd), np.float32), self.backend.hidden)

    def _outputs(self, tokens: Sequence[int], result: Float32,
                 compute: Callable[[list[StepSequence]], Float32]) -> Float32:
        """Fills the rows of `result` with the outputs of the last tokens and returns it."""
        self.check_tokens(tokens)
        if len(tokens) > self.config.n_ctx:
            raise PromptTooLongError(f"there are {len(tokens):,} tokens but the context holds {self.config.n_ctx:,}; "
                                     f"take fewer{self.config.way_to_more}")
        self.scheduler.make_room(pages_for(len(tokens)))
        pages = self.pool.allocate(pages_for(len(tokens)))
        try:
            n_done = 0
            for part in iterate_outputs(self.backend, tokens, pages, len(result), compute):
                result[n_done : n_done + len(part)] = part
                n_done += len(part)
        finally:
            self.pool.release(pages)
        return result

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise RequestError unless there are tokens and the model has all of them."""
        if not len(tokens):
            raise RequestError("the prompt has no tokens; expected one at least")
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < self.backend.n_vocab:
                raise RequestError(f"token {token} is not in the vocabulary; expected 0 to {self.backend.n_vocab - 1}")

    def _sample(self, chunks: Sequence[Chunk], logits: Float32) -> None:
        """Choose the tokens that follow chunks with an output, unless an interrupted step has: a draw happens once."""
        ready = [self._live[chunk.request.id] for chunk in chunks if chunk.n_outputs]
        self._sampling.choose([
            (generation.sampler, row, generation.request.tokens)
            # a model may have more rows than its tokenizer has tokens
            for generation, row in zip(ready, logits[:, : self.tokenizer.n_vocab], strict=True)
            if not generation.sampler.has_chosen_after(generation.request.tokens)])

    def _advance(self, generation: Generation) -> Event:
        """Take the token chosen for a request whose others are computed; ends the request if that is the last."""
        request, text = generation.request, generation.text
        try:
            token = generation.sampler.chosen_after(request.tokens)
        except GgpyError as error:      # one request's trouble is not the others'
            request.error = error
            self._finish(request, "error")
            return Event(request.id, (), text.finish(), "error")
        request.tokens.append(token)
        request.num_computed = len(request.tokens) - 1      # not before: a token computed twice does no harm
        request.last_token_s = time.perf_counter()
        request.first_token_s = request.first_token_s or request.last_token_s
        is_end = token in self.tokenizer.eog_ids
        new_text = "" if is_end else text.push(token)
        reason = self._finish_reason(request, is_end=is_end or text.stopped)
        if reason is not None:
            if not text.stopped:
                new_text += text.finish()
            self._finish(request, reason)
        return Event(request.id, (token,), new_text, reason)

    def _finish_reason(self, request: Request, *, is_end: bool) -> FinishReason | None:
        if is_end:
            return "stop"
        is_full = len(request.tokens) >= self.config.n_ctx or request.num_generated == request.params.max_tokens
        return "length" if is_full else None

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason      # first: whoever waits for the request must see that it has ended
        self.scheduler.remove(request)
        del self._live[request.id]
