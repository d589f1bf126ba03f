"""Turns what the scheduler picked into a step of the backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import Backend, StepSequence
from ggpy.engine.kv import Pages
from ggpy.engine.scheduler import Chunk

Float32 = NDArray[np.float32]


def forward(backend: Backend, chunks: Sequence[Chunk]) -> Float32:
    """Compute `chunks`: logits (chunks with an output, n_vocab) in their order, valid until the next call."""
    return backend.forward([step_sequence(backend, chunk) for chunk in chunks])


def step_sequence(backend: Backend, chunk: Chunk) -> StepSequence:
    request = chunk.request
    first = request.num_computed
    return StepSequence(tokens=request.tokens[first : first + chunk.length], first_position=first,
                        page_table=page_table(backend, request.page_table), n_outputs=chunk.n_outputs)


def page_table(backend: Backend, pages: Pages) -> NDArray[np.int32]:
    """The same pages in every KV group."""
    table = np.zeros((len(backend.kv_groups), backend.table_pages), np.int32)
    table[:, : len(pages)] = pages
    return table


def iterate_outputs(backend: Backend, tokens: Sequence[int], pages: Pages, n_outputs: int,
                    compute: Callable[[list[StepSequence]], Float32]) -> Iterator[Float32]:
    """Outputs of the last `n_outputs` of `tokens`, in parts (n, width), n 0 or more, valid until the next one.

    `compute` is the backend's `forward` or `hidden`. `pages` hold the keys and values of all `tokens` meanwhile.
    """
    first_output = len(tokens) - n_outputs
    start, table = 0, page_table(backend, pages)
    while start < len(tokens):
        stop = min(len(tokens), start + backend.max_tokens, max(start, first_output) + backend.max_outputs)
        n = max(0, stop - max(start, first_output))
        rows = compute([StepSequence(tokens=tokens[start:stop], first_position=start, page_table=table, n_outputs=n)])
        yield rows
        start = stop
