"""Where each buffer of a plan lives, and where threads must meet: both follow from who reads what when."""

from collections.abc import Mapping

from ggpy.graph.ops import RowKind
from ggpy.graph.plan import ALIGNMENT, Buffer, Plan


def place_buffers(plan: Plan, capacity: Mapping[RowKind, int]) -> None:
    """Gives every buffer an offset such that buffers in use at the same time do not overlap: first fit, by birth.

    `capacity` is the number of rows of each kind that a step may have.
    """
    births, deaths = _lifetimes(plan)
    placed: list[Buffer] = []
    for buffer in sorted(births, key=lambda b: births[b]):
        size = size_bytes(buffer, capacity)
        alive = sorted((b for b in placed if deaths[b] >= births[buffer]), key=lambda b: plan.offsets[b])
        offset = 0
        for other in alive:
            if plan.offsets[other] - offset >= size:
                break
            offset = max(offset, plan.offsets[other] + size_bytes(other, capacity))
        plan.offsets[buffer] = offset
        plan.arena_bytes = max(plan.arena_bytes, offset + size)
        placed.append(buffer)


def size_bytes(buffer: Buffer, capacity: Mapping[RowKind, int]) -> int:
    return -(-buffer.row_bytes * capacity[buffer.rows] // ALIGNMENT) * ALIGNMENT


def _lifetimes(plan: Plan) -> tuple[dict[Buffer, int], dict[Buffer, int]]:
    """First and last task that touches each buffer; -1 is before the first task, len(tasks) is after the last."""
    births: dict[Buffer, int] = {buffer: -1 for _, buffer in plan.embeds}
    deaths: dict[Buffer, int] = dict(births)
    for i, task in enumerate(plan.tasks):
        for buffer in (*task.writes(), *task.reads()):
            births.setdefault(buffer, i)
            deaths[buffer] = i
    for buffer in plan.outputs.values():
        deaths[buffer] = len(plan.tasks)
    return births, deaths


def set_barriers(plan: Plan, capacity: Mapping[RowKind, int]) -> None:
    """Clears the barrier after each task whose successor touches nothing that was written since the last barrier.

    Memory counts, not buffers: a task may also not overwrite what another may still be reading.
    """
    def extent(buffer: Buffer) -> tuple[int, int]:
        start = plan.offsets[buffer]
        return start, start + size_bytes(buffer, capacity)

    read: list[tuple[int, int]] = []
    written: list[tuple[int, int]] = []
    for task, following in zip(plan.tasks, plan.tasks[1:], strict=False):
        read += [extent(buffer) for buffer in task.reads()]
        written += [extent(buffer) for buffer in task.writes()]
        next_reads = [extent(buffer) for buffer in following.reads()]
        next_writes = [extent(buffer) for buffer in following.writes()]
        task.barrier = _overlap(written, next_reads + next_writes) or _overlap(read, next_writes)
        if task.barrier:
            read, written = [], []


def _overlap(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> bool:
    return any(start < other_end and other_start < end for start, end in a for other_start, other_end in b)
