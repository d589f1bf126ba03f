"""Turns what the scheduler picked into a step of the backend."""

from __future__ import annotations

from collections.abc import Sequence

from ggpy.arrays import Float32
from ggpy.backends.base import Backend, StepSequence
from ggpy.engine.scheduler import Chunk


def forward(backend: Backend, chunks: Sequence[Chunk]) -> Float32:
    """Compute `chunks`: logits (all their n_outputs, n_vocab), valid until the next call."""
    return backend.forward([step_sequence(chunk) for chunk in chunks])


def step_sequence(chunk: Chunk) -> StepSequence:
    request = chunk.request
    assert request.kv is not None, "who runs has pages"
    first = request.num_computed
    return StepSequence(tokens=[*request.tokens[first : first + chunk.length], *chunk.drafts], first_position=first,
                        page_table=request.kv.page_table, n_outputs=chunk.n_outputs, adapters=request.adapters or ())
