"""What a step does and where its time goes: the work of each tape entry, and when each thread was at it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggpy.backends.base import CacheTypes, StepSequence, kv_bytes
from ggpy.backends.cpu.encode import Entry
from ggpy.backends.cpu.weights import PlacedWeight, WeightStore
from ggpy.graph.ops import Attention, ExpertLinear, Linear, RowKind


@dataclass(frozen=True, slots=True)
class Work:
    """The least that a tape entry has to read and compute in one step."""

    weight_bytes: int = 0       # of a matrix, as it lies in memory, read once
    kv_bytes: int = 0           # keys and values that the rows see, those of a sequence read once
    operations: int = 0         # multiplications and additions of products


@dataclass(frozen=True, slots=True, eq=False)
class StepTrace:
    """One step. Seconds are perf_counter's, cycles those of the processor's own counter."""

    work: list[Work]                        # of each tape entry
    cycles: npt.NDArray[np.int64]           # (n_entries, n_threads, 2): where each thread began and ended each entry
    begin_s: float
    tape_s: float                           # when the rows were laid out and the threads were called
    end_s: float

    @property
    def first_cycle(self) -> int:
        """When the first thread began. One that had no part in an entry, as may be thread 0, has zeros there."""
        return int(self.cycles[:, :, 0][self.cycles[:, :, 1] != 0].min())


def seconds_per_cycle(first: StepTrace, last: StepTrace) -> float:
    """The counter's period, from the beginnings of two steps; they should be at least some 50 ms apart."""
    return float((last.tape_s - first.tape_s) / (last.first_cycle - first.first_cycle))


def work_of(entries: Sequence[Entry], weights: WeightStore, sequences: Sequence[StepSequence], *,
            n_used: int, cache_types: CacheTypes) -> list[Work]:
    """What each of `entries` has to do in a step of `sequences`; a token uses `n_used` experts."""
    n_tokens = sum(len(sequence.tokens) for sequence in sequences)
    rows: dict[RowKind, int] = {"tokens": n_tokens, "slots": n_tokens * n_used,
                                "outputs": sum(sequence.n_outputs for sequence in sequences)}
    return [_work(entry, weights, sequences, rows, cache_types) for entry in entries]


def _work(entry: Entry, weights: WeightStore, sequences: Sequence[StepSequence], rows: dict[RowKind, int],
          cache_types: CacheTypes) -> Work:
    op = entry.op
    if isinstance(op, Linear):
        return _product(weights.matrix(op.weight), rows[op.rows], 1)
    if isinstance(op, ExpertLinear):
        # rows may choose the same experts: then fewer are read
        return _product(weights.matrix(op.weight), rows["slots"], min(op.weight.shape[0], rows["slots"]))
    if isinstance(op, Attention) and entry.kernel.startswith("attention.attend"):
        return _attention(op, sequences, cache_types)
    return Work()


def _product(weight: PlacedWeight, n_rows: int, n_matrices: int) -> Work:
    if n_rows == 0:
        return Work()
    size = weight.n_out * weight.row_bytes if weight.mapped else weight.expert_bytes
    return Work(weight_bytes=n_matrices * size, operations=2 * n_rows * weight.n_in * weight.n_out)


def _attention(op: Attention, sequences: Sequence[StepSequence], cache_types: CacheTypes) -> Work:
    n_read = n_pairs = 0
    for sequence in sequences:
        n = len(sequence.tokens)
        visible = sequence.first_position + 1 + np.arange(n)        # positions that each row sees
        if not op.causal:
            visible[:] = sequence.first_position + n
        if op.window is not None:
            visible = np.minimum(visible, op.window)
        n_read += min(sequence.first_position + n, int(visible[0]) + n - 1)
        n_pairs += int(visible.sum())
    per_token = sum(kv_bytes(op.n_head_kv * dim, kind)
                    for dim, kind in zip((op.head_dim_k, op.head_dim_v), cache_types, strict=True))
    return Work(kv_bytes=n_read * per_token, operations=2 * n_pairs * op.n_head * (op.head_dim_k + op.head_dim_v))
