"""Logits and hidden states of given tokens, computed a part at a time so that answers go on between the parts."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import Backend, StepSequence
from ggpy.engine.radix import SequenceKV
from ggpy.engine.scheduler import Scheduler
from ggpy.errors import OutOfMemoryError

Float32 = NDArray[np.float32]
Kind = Literal["logits", "hidden"]
Parts = Generator[None, None, Float32]      # gives way to a step wherever it yields


def compute_outputs(backend: Backend, scheduler: Scheduler, kind: Kind, tokens: Sequence[int], n_outputs: int,
                    salt: int = 0) -> Parts:
    """Logits (n_outputs, n_vocab) or hidden states (n_outputs, n_embd) of the last `n_outputs` of `tokens`.

    What the cache holds of the tokens before them is not computed again. Where pages are short, running requests give
    way and resume afterwards. Raises OutOfMemoryError if there is no memory for the result.
    """
    result = empty_float32((n_outputs, backend.n_vocab if kind == "logits" else backend.n_embd))
    compute = backend.forward if kind == "logits" else backend.hidden
    first_output, cache = len(tokens) - n_outputs, scheduler.cache
    # a prefix is looked up in all tokens but the last, so the first output is computed
    kv = cache.open(tokens[: first_output + 1], salt)
    start = kv.num_computed
    try:
        while start < len(tokens):
            n_rows = scheduler.pace.rows(backend.max_tokens, len(scheduler.running))
            first = max(start, first_output)
            stop = min(len(tokens), start + n_rows, first + backend.max_outputs)
            make_room(scheduler, kv, stop)
            rows = compute([StepSequence(tokens=tokens[start:stop], first_position=start, page_table=kv.page_table,
                                         n_outputs=max(0, stop - first))])
            if stop > first:
                result[first - first_output : stop - first_output] = rows
            cache.advance(kv, tokens, stop)
            start = stop
            if start < len(tokens):
                yield
    except Exception:
        cache.discard(kv)
        raise
    except GeneratorExit:       # nobody wants the rest
        cache.close(kv)
        raise
    cache.close(kv)
    return result


def make_room(scheduler: Scheduler, kv: SequenceKV, n_tokens: int) -> None:
    """Pages for the first `n_tokens` of a sequence, for which running requests give way."""
    has_room = scheduler.make_room(lambda: scheduler.cache.reserve(kv, n_tokens))
    assert has_room, "every sequence fits when it is alone"


def empty_float32(shape: tuple[int, int]) -> Float32:
    """An array that is not filled yet. Raises OutOfMemoryError."""
    try:
        return np.empty(shape, np.float32)
    except MemoryError as error:
        raise OutOfMemoryError(f"{4 * math.prod(shape) / 1e9:,.1f} GB for {shape[0]:,} rows of {shape[1]:,} numbers "
                               "are not there; ask for fewer positions") from error
