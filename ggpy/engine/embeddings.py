"""Vectors of texts: hidden states, pooled as the model wants it, or a classifier's scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ggpy.backends.base import Backend, Scales, StepSequence
from ggpy.engine.compute_outputs import Kind, Parts, Wanted, compute_outputs
from ggpy.engine.config import Pooling
from ggpy.engine.pages import pages_for
from ggpy.engine.scheduler import Scheduler

MAX_TEXTS_OF_STEP = 64      # each may leave most of a page unused


def embed_texts(backend: Backend, scheduler: Scheduler, texts: Sequence[Sequence[int]], pooling: Pooling,
                salt: int = 0, adapters: Scales = ()) -> Parts:
    """The vectors of each text (its tokens), in order: (1, width), or a row per token if `pooling` is "none".

    "mean" is the mean of the hidden states, "cls" the first one, "last" the last one; "rank" are the scores of the
    classifier on top of the state that it is meant for, the first one in encoders.
    """
    kind: Kind = "scores" if pooling == "rank" else "hidden"
    if backend.is_encoder:
        rows = yield from encode(backend, kind, texts, pooling, adapters)
    else:
        rows = yield from compute_outputs(backend, scheduler, kind, [wanted(tokens, pooling) for tokens in texts],
                                          salt, adapters)
    return [each.mean(axis=0, keepdims=True) for each in rows] if pooling == "mean" else rows


def wanted(tokens: Sequence[int], pooling: Pooling) -> Wanted:
    """What a model that looks back only has to compute for `pooling`."""
    if pooling == "cls":
        return Wanted(tokens[:1], 1)
    return Wanted(tokens, n_outputs(tokens, pooling))


def n_outputs(tokens: Sequence[int], pooling: Pooling) -> int:
    """Tokens of a text whose states are pooled."""
    return len(tokens) if pooling in ("none", "mean") else 1


def encode(backend: Backend, kind: Kind, texts: Sequence[Sequence[int]], pooling: Pooling,
           adapters: Scales) -> Parts:
    """States or scores of an encoder, which computes texts whole, as many in a step as there is room for."""
    compute = backend.scores if kind == "scores" else backend.hidden
    result = []
    for first, batch in batches(texts, backend.max_tokens):
        if first:
            yield
        sequences, page = [], 0
        for tokens in batch:
            # nothing is kept between steps, so every step may use all pages
            table = np.zeros((len(backend.kv_groups), backend.table_pages), np.int32)
            n_pages = pages_for(len(tokens))
            table[:, :n_pages] = np.arange(page, page + n_pages)
            sequences.append(StepSequence(tokens, 0, table, n_outputs(tokens, pooling),
                                          outputs_first=pooling in ("cls", "rank"), adapters=adapters))
            page += n_pages
        ends = np.cumsum([sequence.n_outputs for sequence in sequences])
        result += np.split(compute(sequences).copy(), ends[:-1])
    return result


def batches(texts: Sequence[Sequence[int]], max_tokens: int) -> Iterator[tuple[int, Sequence[Sequence[int]]]]:
    """`texts` in runs that fit a step, each with the number of its first text."""
    start = size = 0
    for i, tokens in enumerate(texts):
        if i > start and (size + len(tokens) > max_tokens or i - start == MAX_TEXTS_OF_STEP):
            yield start, texts[start:i]
            start, size = i, 0
        size += len(tokens)
    if start < len(texts):
        yield start, texts[start:]
