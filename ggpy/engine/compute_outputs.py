"""Logits, hidden states and scores of given tokens, computed step by step, between which answers go on."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ggpy.arrays import Float32
from ggpy.backends.base import Backend, Scales, StepSequence
from ggpy.engine.kv_cache import SequenceKV
from ggpy.engine.scheduler import Scheduler
from ggpy.errors import OutOfMemoryError

Kind = Literal["logits", "hidden", "scores"]
Parts = Generator[None, None, list[Float32]]        # gives way to a step wherever it yields


class Wanted(NamedTuple):
    """The rows of the last `n_outputs` of `tokens`."""

    tokens: Sequence[int]
    n_outputs: int


def compute_outputs(backend: Backend, scheduler: Scheduler, kind: Kind, wanted: Sequence[Wanted],
                    salt: int = 0, adapters: Scales = ()) -> Parts:
    """What is `wanted` of each text, in order: logits (n_outputs, n_vocab), hidden states or scores, of their width.

    `adapters` are those of the salt. Texts share steps. What the cache holds of the tokens before the first output is
    not computed again. Where pages are short, running requests give way and resume afterwards. Raises OutOfMemoryError
    if there is no memory for the result.
    """
    width = {"logits": backend.n_vocab, "hidden": backend.n_embd, "scores": backend.n_classes}[kind]
    texts = [Text(each.tokens, each.n_outputs, empty_float32((each.n_outputs, width))) for each in wanted]
    waiting, cache = deque(texts), scheduler.cache
    try:
        while waiting:
            parts = next_parts(backend, scheduler, waiting, salt)
            if parts:
                compute_parts(backend, scheduler, kind, parts, adapters)
            while waiting and waiting[0].is_computed:
                waiting.popleft()
            if waiting:
                yield
    except Exception:
        for text in texts:
            if text.kv is not None:
                cache.discard(text.kv)
        raise
    except GeneratorExit:       # nobody wants the rest
        for text in texts:
            text.close(scheduler)
        raise
    return [text.rows for text in texts]


@dataclass(slots=True)
class Text:
    """Tokens on their way: the first `start` of them are computed, and lie in the pages of `kv` if it is open."""

    tokens: Sequence[int]
    n_outputs: int
    rows: Float32           # (n_outputs, width)
    kv: SequenceKV | None = None
    start: int = 0

    @property
    def first_output(self) -> int:
        return len(self.tokens) - self.n_outputs

    @property
    def is_computed(self) -> bool:
        return self.start == len(self.tokens)

    def open(self, scheduler: Scheduler, salt: int) -> SequenceKV:
        if self.kv is None:
            # a prefix is looked up in all tokens but the last, so the first output is computed
            self.kv = scheduler.cache.open(self.tokens[: self.first_output + 1], salt)
            self.start = self.kv.num_computed
        return self.kv

    def close(self, scheduler: Scheduler) -> None:
        if self.kv is not None:
            scheduler.cache.close(self.kv)
        self.kv = None


class Part(NamedTuple):
    """Tokens text.start..stop of a text, which has pages for them."""

    text: Text
    kv: SequenceKV
    stop: int

    @property
    def n_outputs(self) -> int:
        return max(0, self.stop - max(self.text.start, self.text.first_output))


def next_parts(backend: Backend, scheduler: Scheduler, texts: Sequence[Text], salt: int) -> list[Part]:
    """What the next step computes of `texts`: the first of them and, as far as there is room, those after it.

    Only the last may be left in parts. Empty if what others compute between steps leaves no pages: they go on first.
    """
    n_rows = scheduler.pace.rows(backend.max_tokens, len(scheduler.running))
    n_outputs = backend.max_outputs
    parts: list[Part] = []
    for text in texts:
        if n_rows <= 0 or n_outputs <= 0:
            break
        kv = text.open(scheduler, salt)
        stop = min(len(text.tokens), text.start + n_rows, max(text.start, text.first_output) + n_outputs)
        if not (scheduler.cache.reserve(kv, stop) if parts else make_room(scheduler, kv, stop)):
            text.close(scheduler)
            break
        parts.append(Part(text, kv, stop))
        n_rows -= stop - text.start
        n_outputs -= parts[-1].n_outputs
    return parts


def compute_parts(backend: Backend, scheduler: Scheduler, kind: Kind, parts: Sequence[Part],
                  adapters: Scales) -> None:
    """One step; what is finished gives up its pages."""
    compute = {"logits": backend.forward, "hidden": backend.hidden, "scores": backend.scores}[kind]
    rows = compute([StepSequence(part.text.tokens[part.text.start : part.stop], part.text.start, part.kv.page_table,
                                 part.n_outputs, adapters=adapters) for part in parts])
    taken = 0
    for part in parts:
        text, n = part.text, part.n_outputs
        end = part.stop - text.first_output
        if n:
            text.rows[end - n : end] = rows[taken : taken + n]
        taken += n
        scheduler.cache.advance(part.kv, text.tokens, part.stop)
        text.start = part.stop
        if text.is_computed:
            text.close(scheduler)


def make_room(scheduler: Scheduler, kv: SequenceKV, n_tokens: int) -> bool:
    """Pages for the first `n_tokens` of a sequence, for which running requests give way."""
    return scheduler.make_room(lambda: scheduler.cache.reserve(kv, n_tokens))


def empty_float32(shape: tuple[int, int]) -> Float32:
    """An array that is not filled yet. Raises OutOfMemoryError."""
    try:
        return np.empty(shape, np.float32)
    except MemoryError as error:
        raise OutOfMemoryError(f"{4 * math.prod(shape) / 1e9:,.1f} GB for {shape[0]:,} rows of {shape[1]:,} numbers "
                               "are not there; ask for fewer positions") from error
