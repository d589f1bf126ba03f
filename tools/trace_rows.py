"""From cycle counts to a table: how long each operation took, what it read and computed, how long threads waited."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.cpu.encode import Entry
from ggpy.backends.cpu.trace import StepTrace, seconds_per_cycle
from ggpy.graph.ops import Add, Attention, Embed, ExpertLinear, LayerNorm, Linear, Op, RmsNorm

Float64 = NDArray[np.float64]


@dataclass(slots=True, kw_only=True)
class Row:
    """Operations of one kind, or a single one. Times are means over the threads, sums over the steps."""

    kernel: str
    tensor: str             # whose weights it reads, or in parentheses: whose result it works on
    calls: int = 0
    busy_s: float = 0.0
    wait_s: float = 0.0     # for the other threads, or for this to begin
    longest_s: float = 0.0  # of the thread that was busy longest, summed over calls
    weight_bytes: int = 0
    kv_bytes: int = 0
    operations: int = 0

    @property
    def time_s(self) -> float:
        return self.busy_s + self.wait_s

    @property
    def gb_per_s(self) -> float:
        """Weights, keys and values that were read, by the time of the busiest thread."""
        return (self.weight_bytes + self.kv_bytes) / self.longest_s / 1e9 if self.longest_s else 0.0

    @property
    def gop_per_s(self) -> float:
        return self.operations / self.longest_s / 1e9 if self.longest_s else 0.0

    @property
    def imbalance(self) -> float:
        """How much longer the busiest thread worked than the mean: 1 is even, the number of threads is one alone."""
        return self.longest_s / self.busy_s if self.busy_s else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What steps add up to, in seconds: the rows of the tape, and what happened around it."""

    n_steps: int
    n_tokens: int
    total_s: float
    rows: list[Row]
    prepare_s: float        # laying out the rows of the step, their angles, and embeddings that have no kernel
    call_s: float           # from Python to the first operation and back from the last


def profile(entries: Sequence[Entry], steps: Sequence[StepTrace], cycle_s: float, *, n_tokens: int,
            each: bool = False) -> Profile:
    """Adds up `steps` of `n_tokens` tokens together; `each`: a row for each entry, not for each kind of them."""
    rows: dict[tuple[str, str], Row] = {}
    for step in steps:
        busy, wait = entry_times(step, cycle_s)
        for entry, work, entry_busy, entry_wait in zip(entries, step.work, busy, wait, strict=True):
            tensor = tensor_of(entry.op) if each else without_layer(tensor_of(entry.op))
            row = rows.setdefault((entry.kernel, tensor), Row(kernel=entry.kernel, tensor=tensor))
            row.calls += 1
            row.busy_s += float(entry_busy.mean())
            row.wait_s += float(entry_wait.mean())
            row.longest_s += float(entry_busy.max())
            row.weight_bytes += work.weight_bytes
            row.kv_bytes += work.kv_bytes
            row.operations += work.operations
    run_s = sum(step.end_s - step.tape_s for step in steps)
    return Profile(n_steps=len(steps), n_tokens=n_tokens, total_s=sum(step.end_s - step.begin_s for step in steps),
                   rows=list(rows.values()), prepare_s=sum(step.tape_s - step.begin_s for step in steps),
                   call_s=max(0.0, run_s - sum(row.time_s for row in rows.values())))


def entry_times(step: StepTrace, cycle_s: float) -> tuple[Float64, Float64]:
    """Seconds (n_entries, n_threads) that each thread worked at an entry, and was idle before the last one ended it.

    Every moment of a thread, from the first beginning to the last end of all, is in one of the two: an entry's time
    reaches from the end of those before it to its own. A thread that had no part in an entry has zeros in the trace.
    """
    begin, end = step.cycles[:, :, 0], step.cycles[:, :, 1]
    took_part = end != 0
    ended = np.maximum.accumulate(end.max(axis=1)) - step.first_cycle
    busy = np.where(took_part, end - begin, 0).astype(np.float64)
    idle = np.empty_like(busy)
    for thread in range(busy.shape[1]):
        did = took_part[:, thread]
        moments = step.cycles[did, thread].ravel() - step.first_cycle     # it begins, ends, begins, ends, ...
        worked = np.repeat(np.cumsum(busy[did, thread]), 2)
        worked[::2] -= busy[did, thread]
        until = np.interp(ended, moments, worked) if did.any() else np.zeros(len(ended))
        idle[:, thread] = np.diff(ended - until, prepend=0)
    return busy * cycle_s, idle * cycle_s


def cycle_of(steps: Sequence[StepTrace]) -> float:
    """Seconds of a cycle; `steps` should span some 50 ms."""
    return seconds_per_cycle(steps[0], steps[-1])


def tensor_of(op: Op) -> str:
    """The tensor that `op` reads, such as blk.0.attn_q; without one, in parentheses what its input came from."""
    if isinstance(op, Linear | ExpertLinear | Embed):
        return op.weight.name.removesuffix(".weight")
    if isinstance(op, RmsNorm | LayerNorm) and op.weight is not None:
        return op.weight.name.removesuffix(".weight")
    if isinstance(op, Attention):
        return f"blk.{op.layer}.attn"
    if not op.inputs:
        return ""
    source = op.inputs[-1 if isinstance(op, Add) else 0]        # an Add's first input is the residual stream
    return f"({tensor_of(source).strip('()')})"


def without_layer(tensor: str) -> str:
    """blk.*.attn_q for blk.7.attn_q."""
    return re.sub(r"^(\(?blk)\.\d+\.", r"\1.*.", tensor)
