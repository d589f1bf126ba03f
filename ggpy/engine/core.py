"""The loop that serves requests: schedule, run, sample, emit."""

from __future__ import annotations

import functools
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from ggpy.arrays import Float32
from ggpy.backends.base import PAGE_TOKENS, Backend, Scales
from ggpy.engine.adapters import Adapters
from ggpy.engine.audit import Auditor
from ggpy.engine.compute_outputs import Parts, Wanted, compute_outputs
from ggpy.engine.config import EngineConfig, Pooling
from ggpy.engine.embeddings import embed_texts
from ggpy.engine.generation import Generation
from ggpy.engine.kv_cache import KVCache
from ggpy.engine.masks import MaskWriter
from ggpy.engine.metrics import EngineLoad, EngineMetrics, PageUse
from ggpy.engine.output_text import OutputText
from ggpy.engine.pages import pages_for
from ggpy.engine.request import Event, FinishReason, Request
from ggpy.engine.runner import forward
from ggpy.engine.sampling import Sampler, SamplingMemory
from ggpy.engine.scheduler import Chunk, Scheduler
from ggpy.engine.speculation import Speculator
from ggpy.engine.stats import request_stats, step_stats
from ggpy.engine.step_result import StepResult
from ggpy.errors import (
    ConfigError,
    DeadlineError,
    GgpyError,
    GrammarError,
    PromptTooLongError,
    QueueFullError,
    RequestError,
    shown,
)
from ggpy.kernels.cpu import object_loader
from ggpy.text import StreamDecoder, Tokenizer

if TYPE_CHECKING:
    from ggpy.engine.structured.constraint import Grammars


class EngineCore:
    """Serves any number of requests on one backend. Nothing happens but in its methods, and one thread calls them: only
    `prepare` may be called by any.

    `speculator` proposes tokens that steps then verify; what requests get is the same without. `adapters` are those of
    the backend.
    """

    def __init__(self, backend: Backend, tokenizer: Tokenizer, config: EngineConfig,
                 speculator: Speculator | None = None, adapters: Adapters | None = None) -> None:
        if pages_for(config.n_ctx) > min(backend.n_pages[0], backend.table_pages):
            raise ConfigError(f"n_ctx={config.n_ctx}: the KV pool has {backend.n_pages[0]} pages of {PAGE_TOKENS} "
                              f"tokens, expected {pages_for(config.n_ctx)} or more")
        self.backend = backend
        self.tokenizer = tokenizer
        self.config = config
        self.speculator = speculator
        self.adapters = adapters or Adapters()
        self.metrics = EngineMetrics(self._load)
        self._masks = MaskWriter(tokenizer.n_vocab)
        self._sampling = SamplingMemory(backend.team)
        self._live: dict[int, Generation] = {}
        self.reset()

    @functools.cached_property
    def _grammars(self) -> Grammars:
        """Made by the first request that has a constraint, since it loads llguidance."""
        from ggpy.engine.structured.constraint import Grammars

        return Grammars(self.tokenizer)

    def close(self) -> None:
        """Free the backend; no other method makes sense any more."""
        self._masks.close()
        if self.speculator is not None:
            self.speculator.close()
        self.backend.close()

    def reset(self) -> None:
        """Forget all requests and pages, whatever state a failure left them in."""
        backend, config = self.backend, self.config
        self.cache = KVCache([group.window for group in backend.kv_groups], backend.n_pages, backend.table_pages,
                             backend.copy_page)
        self._auditor = Auditor(backend, self.cache, self.metrics, config.cache_audit,
                                lambda: self.scheduler.pace.rows(backend.max_tokens, len(self.scheduler.running)))
        self.scheduler = Scheduler(
            self.cache, max_batch_tokens=min(config.max_batch_tokens, backend.max_tokens),
            max_outputs=backend.max_outputs, max_running=config.max_running, max_queue=config.max_queue,
            step_ms=config.step_ms, release=self._auditor.release)
        if self.speculator is not None:
            self.speculator.reset()
        self._live.clear()
        self._sampling.clear()

    @property
    def has_work(self) -> bool:
        return bool(self._live) or self._auditor.is_busy

    def must_compile(self, request: Request) -> bool:
        """Whether `prepare` may take seconds, since samplers or the grammar of `request` are not compiled."""
        constraint = request.constraint
        if constraint is not None and not ("_grammars" in vars(self) and self._grammars.knows(constraint)):
            return True
        return bool(object_loader.missing(Sampler.kernels(
            request.params, self.tokenizer, is_masked=constraint is not None, keeps_left=request.keeps_left)))

    def prepare(self, request: Request) -> Generation:
        """Make ready what `request` needs beside the model. Its samplers may have to be compiled: this can take long.

        Raises PromptTooLongError if its prompt leaves no room for an answer, RequestError for an empty prompt, a
        token or an adapter that the model does not have, a constraint that cannot be kept to, or a model that does not
        generate.
        """
        self._require_logits()
        self.check_tokens(request.prompt_tokens)
        if len(request.prompt_tokens) >= self.config.n_ctx:
            raise PromptTooLongError(
                f"the prompt has {len(request.prompt_tokens):,} tokens but the context holds {self.config.n_ctx:,}, "
                f"the answer included; shorten it{self.config.way_to_more}")
        request.adapters = self.adapters.scales_of(request.adapters)
        request.salt = self.adapters.salted(request.salt, request.adapters)
        constraint = None if request.constraint is None else self._grammars.start(request.constraint)
        sampler = Sampler.for_tokenizer(
            request.params, self.tokenizer, is_masked=constraint is not None, keeps_left=request.keeps_left)
        decoder = StreamDecoder(self.tokenizer, special=self.config.shows_special)
        return Generation(request, sampler, OutputText(decoder, request.params.stop), constraint,
                          self.tokenizer.eog_ids, self.config.n_ctx,
                          synthetic_rates=self.config.synthetic_rates, shows_special=self.config.shows_special)

    def add(self, generation: Generation) -> None:
        """Queue a new request. Raises QueueFullError."""
        try:
            self.scheduler.add(generation.request)
        except QueueFullError:
            self.metrics.rejected()
            raise
        self.metrics.queued()
        self._live[generation.request.id] = generation

    def cancel(self, request_id: int) -> bool:
        """End a request now and free its pages; no event follows. False if it is not live."""
        generation = self._live.get(request_id)
        if generation is None:
            return False
        self._finish(generation.request, "cancelled")
        return True

    def step(self) -> list[Event]:
        """One forward pass; returns an event for each request that got a token or ended.

        After an exception only `reset` makes sense.
        """
        self._auditor.go_on()
        start_s = time.perf_counter()
        events = self._end_late(start_s) + self._draft()
        n_preempted = self.scheduler.num_preempted
        chunks = self.scheduler.schedule(start_s)
        for request in self.scheduler.admitted:
            self.metrics.admitted(start_s - request.added_s)
            self._auditor.admitted(request)
        if not chunks:
            return events
        self._masks.start([(generation.constraint, chunk.drafts) for chunk in chunks if chunk.n_outputs
                           if (generation := self._live[chunk.request.id]).constraint is not None])
        forward_start_s = time.perf_counter()
        logits = forward(self.backend, chunks)
        forward_s = time.perf_counter() - forward_start_s
        self.scheduler.pace.saw(sum(chunk.n_rows for chunk in chunks), forward_s)
        results = self._sample(chunks, logits)
        events += self._progress(chunks)
        step_s = time.perf_counter() - start_s if all(chunk.is_answer for chunk in chunks) else None
        events += [self._account(result, step_s) for result in results]
        self.metrics.step(step_stats(chunks, results, step_s=time.perf_counter() - start_s, forward_s=forward_s,
                                     n_preempted=self.scheduler.num_preempted - n_preempted))
        return events

    def logits(self, tokens: Sequence[int], n_outputs: int) -> Generator[None, None, Float32]:
        """Logits of the last `n_outputs` of `tokens`, computed part by part between steps.

        Raises PromptTooLongError or RequestError for tokens that cannot be computed, OutOfMemoryError if there is no
        memory for the result.
        """
        self._require_logits()
        self._check_text(tokens)
        salt, adapters = self._usual()
        parts = compute_outputs(self.backend, self.scheduler, "logits", [Wanted(tokens, n_outputs)], salt, adapters)
        return only(parts)

    def embed(self, texts: Sequence[Sequence[int]], pooling: Pooling | None = None) -> Parts:
        """The vectors of `texts` (their tokens), computed part by part between steps; see `embed_texts`.

        None is the pooling of the model, or "mean" where it does not say. Raises PromptTooLongError or RequestError for
        texts that cannot be computed, and for a rank without a classifier, OutOfMemoryError if there is no memory for
        the result.
        """
        pooling = pooling or self.config.pooling or "mean"
        if pooling == "rank" and not self.backend.n_classes:
            raise RequestError("this model has no classifier, so it does not rank; load a reranker for that")
        for tokens in texts:
            self._check_text(tokens)
        parts = embed_texts(self.backend, self.scheduler, texts, pooling, *self._usual())
        return self._measured(parts, sum(map(len, texts)))

    def _measured(self, parts: Parts, n_tokens: int) -> Parts:
        """`parts`, whose passes are counted as those that read prompts are."""
        with closing(parts):
            while True:
                start_s = time.perf_counter()
                try:
                    next(parts)
                except StopIteration as end:
                    self.metrics.embedded(n_tokens, time.perf_counter() - start_s)
                    rows: list[Float32] = end.value
                    return rows
                self.metrics.embedded(0, time.perf_counter() - start_s)
                yield

    def salt_of(self, salt: int) -> int:
        """What requests with this salt, and the usual adapters, share prefixes by."""
        return self.adapters.salted(salt, self.adapters.scales_of(None))

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise RequestError unless there are tokens and the model has all of them."""
        if not len(tokens):
            raise RequestError("the prompt has no tokens; expected one at least")
        for token in (min(tokens), max(tokens)):
            if not 0 <= token < self.backend.n_vocab:
                raise RequestError(f"token {shown(token)} is not in the vocabulary; expected 0 to "
                                   f"{self.backend.n_vocab - 1:,}")

    def _usual(self) -> tuple[int, Scales]:
        """The salt and the adapters of who does not say."""
        scales = self.adapters.scales_of(None)
        return self.adapters.salted(0, scales), scales

    def _require_logits(self) -> None:
        if self.backend.is_encoder:
            raise RequestError("this model makes embeddings and does not generate text; load another one for that")

    def _check_text(self, tokens: Sequence[int]) -> None:
        """Raise RequestError or PromptTooLongError unless `tokens` can be computed."""
        self.check_tokens(tokens)
        n = len(tokens)
        if self.backend.is_encoder and n > self.backend.max_tokens:     # worded as in llama.cpp's server
            raise PromptTooLongError(f"input ({n} tokens) is too large to process. increase the physical batch size "
                                     f"(current batch size: {self.backend.max_tokens})")
        if n > self.config.n_ctx:
            raise PromptTooLongError(f"there are {n:,} tokens but the context holds {self.config.n_ctx:,}; "
                                     f"take fewer{self.config.way_to_more}")

    def _end_late(self, now_s: float) -> list[Event]:
        """End the requests whose time is up."""
        requests = [generation.request for generation in self._live.values()]
        late = [request for request in requests if request.deadline_s is not None and request.deadline_s <= now_s]
        return [self._fail(request, DeadlineError(
            f"the time that the request allowed is up, {now_s - request.added_s:.1f} s after it came; "
            f"{request.num_generated:,} tokens were generated")) for request in late]

    def _fail(self, request: Request, error: GgpyError) -> Event:
        """End a request between two steps; returns its last event."""
        text = self._live[request.id].text.finish()
        self._finish(request, "error")
        return Event(request.id, (), text, "error", error, request.num_cached or 0, request.miss)

    def _draft(self) -> list[Event]:
        """Propose tokens for requests that generate; rows that a prompt can use are worth more than guesses.

        Returns the last events of those whose constraint fails meanwhile.
        """
        events = []
        drafting = self.scheduler.drafting
        if self.speculator is not None:
            self.speculator.draft(drafting)
        for request in drafting:
            generation = self._live[request.id]
            if request.draft_tokens or generation.constraint is not None:
                try:
                    request.draft_tokens = generation.usable_drafts()
                except GrammarError as error:
                    events.append(self._fail(request, error))
        return events

    def _progress(self, chunks: Sequence[Chunk]) -> list[Event]:
        """How far prompts are read, for requests that want to know: also what the cache had, before the first step."""
        events = []
        for chunk in chunks:
            request = chunk.request
            if request.tells_progress and not chunk.is_answer and request.first_token_s is None:
                n_cached = request.num_cached or 0
                counts = [n_cached] if request in self.scheduler.admitted else []
                n_read = min(request.num_computed, len(request.prompt_tokens))
                events += [Event(request.id, num_cached=n_cached, num_read=n, admitted_s=request.admitted_s)
                           for n in (*counts, n_read)]
        return events

    def _sample(self, chunks: Sequence[Chunk], logits: Float32) -> list[StepResult]:
        """Choose the tokens that follow the output rows, and count the others of `chunks` as computed."""
        n_vocab = self.tokenizer.n_vocab        # a model may have more rows than its tokenizer has tokens
        known = logits[:, :n_vocab]
        results: list[StepResult] = []
        n_outputs = 0
        for chunk in chunks:
            if chunk.n_outputs:
                generation = self._live[chunk.request.id]
                results.append(StepResult(generation, chunk, known, n_outputs))
                n_outputs += chunk.n_outputs
                if generation.constraint is not None:
                    self._add_masks(results[-1])
            else:
                self._computed(chunk.request, chunk.request.num_computed + chunk.length)
        choosing = [result for result in results if result.error is None]
        while choosing:
            tokens = self._sampling.choose(logits, [result.choice() for result in choosing], n_vocab)
            choosing = [result for result, token in zip(choosing, tokens, strict=True) if result.take(token)]
        return results

    def _add_masks(self, result: StepResult) -> None:
        try:
            result.masks = self._masks.take()
        except GrammarError as error:
            result.fail(error)

    def _account(self, result: StepResult, step_s: float | None) -> Event:
        """Account for what a step brought; returns its event. `step_s` is None for a step that also read prompts."""
        request = result.generation.request
        request.num_drafted += result.num_drafted
        request.num_accepted += result.num_accepted
        event = result.event()
        if self.speculator is not None:
            self.speculator.saw(request, result.num_drafted, result.num_accepted, step_s)
        request.draft_tokens = ()
        self._note_times(request, event)
        if result.error is None:
            self._computed(request, request.num_computed)
        if result.reason is not None:
            self._finish(request, result.reason)
        elif result.generation.num_free <= 0:
            self.scheduler.shift(request)
            if self.speculator is not None:
                self.speculator.shifted(request)
        return event

    def _note_lookup(self, request: Request) -> None:
        """Count what the cache had of a prompt; while it is read, others may still compute some of it."""
        if request.num_cached is not None and request.miss is not None:
            self.metrics.looked_up(len(request.prompt_tokens), request.num_cached, request.miss.cause)

    def _note_times(self, request: Request, event: Event) -> None:
        """Remember when tokens came."""
        if not event.tokens:
            return
        if request.last_token_s is None:
            request.first_token_s = event.time_s
            self.metrics.first_token(event.time_s - request.added_s, len(event.tokens))
            self._note_lookup(request)
        else:
            self.metrics.inter_token(event.time_s - request.last_token_s, len(event.tokens))
        request.last_token_s = event.time_s

    def _computed(self, request: Request, num_computed: int) -> None:
        """The first `num_computed` tokens lie in pages now, for others too."""
        assert request.kv is not None, "who runs has pages"
        request.num_computed = num_computed
        num_before = request.kv.num_computed
        self.cache.advance(request.kv, request.tokens, num_computed)
        for n_tokens, keep_s in request.keeps:
            if num_before < n_tokens <= num_computed:       # before the answer needs what its windows have left
                self.cache.keep(request.kv, n_tokens, time.monotonic() + keep_s)

    def _finish(self, request: Request, reason: FinishReason) -> None:
        request.finish_reason = reason
        self.scheduler.remove(request)
        if self.speculator is not None:
            self.speculator.finished(request)
        if request.first_token_s is None:
            self._note_lookup(request)
        self.metrics.finished(request_stats(request))
        self._sampling.forget(self._live.pop(request.id).sampler)

    def _load(self) -> EngineLoad:
        """What there is to do; any thread may ask."""
        cache = self.cache
        pages = [PageUse(*counts) for counts in zip(cache.n_free, cache.n_idle, cache.n_held, strict=True)]
        return EngineLoad(len(self.scheduler.running), len(self.scheduler.waiting), pages)


def only(parts: Parts) -> Generator[None, None, Float32]:
    """The one array that `parts` make."""
    [rows] = yield from parts
    return rows
