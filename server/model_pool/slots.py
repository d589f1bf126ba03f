"""The slots that llama-server's API speaks of: names for requests that run, and what was last read under each.

The engine knows no slots: all requests share its cache. A request gets a free slot if there is one, else the first
that becomes free; it is not held up by that.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ggpy.server.settings import SIMILARITY

RUN = 256               # tokens that are compared at once

_task_ids = itertools.count()


@dataclass(eq=False)
class Slot:
    """What one slot does, or last did."""

    id: int
    task: Task | None = None                # that runs
    last: Task | None = None                # that ran before
    tokens: list[int] = field(default_factory=list)     # whose keys and values it would hold
    salt: int = 0                           # that they are stored under: not 0 for those of a file
    used: int = 0                           # counts up; the lowest one was idle for longest


@dataclass(eq=False)
class Task:
    """One answer as slots tell it."""

    prompt: Sequence[int]
    wish: int | None = None                 # the slot that it shall have
    settings: Any = None                    # what /slots shows as params
    n_predict: int | None = None            # tokens to generate at most
    salt: int = 0                           # that its prompt is looked up under
    id: int = field(default_factory=lambda: next(_task_ids))
    slot: Slot | None = None
    n_cached: int = 0
    n_computed: int = 0                     # prompt tokens
    n_decoded: int = 0
    has_new_line: bool = False

    @property
    def slot_id(self) -> int:
        """-1 while there is none."""
        return -1 if self.slot is None else self.slot.id


class SlotBoard:
    """Gives the slots to tasks."""

    def __init__(self, n_slots: int, similarity: float = SIMILARITY) -> None:
        self._similarity = similarity       # a slot whose tokens begin a prompt to more than this share is taken for it
        self.slots = [Slot(i) for i in range(n_slots)]
        self._waiting: list[Task] = []
        self._counter = itertools.count(1)

    @property
    def n_idle(self) -> int:
        return sum(slot.task is None for slot in self.slots)

    def enter(self, task: Task) -> None:
        """Give `task` a slot, now or when one is free. What was restored to a slot is found by those who get it."""
        if task.wish is not None:
            task.salt = self.slots[task.wish].salt
        self._waiting.append(task)
        self._assign()

    def leave(self, task: Task, tokens: Sequence[int]) -> None:
        """`task` has ended; `tokens` are those that were computed for it. Does nothing the second time."""
        if task in self._waiting:
            self._waiting.remove(task)
        if task.slot is not None and task.slot.task is task:
            slot = task.slot
            slot.task, slot.last, slot.tokens, slot.salt = None, task, list(tokens), task.salt
            slot.used = next(self._counter)
        self._assign()

    def _assign(self) -> None:
        for task in list(self._waiting):
            slot = self._choose(task)
            if slot is not None:
                self._waiting.remove(task)
                slot.task, task.slot = task, slot

    def _choose(self, task: Task) -> Slot | None:
        """The idle slot that `task` wishes for, that begins most like its prompt, or that was idle for longest."""
        idle = [slot for slot in self.slots if slot.task is None]
        if task.wish is not None:
            return next((slot for slot in idle if slot.id == task.wish), None)
        if not idle:
            return None
        best, n_best = idle[0], -1
        for slot in idle:
            n = common_prefix(slot.tokens, task.prompt)
            if n > n_best:
                best, n_best = slot, n
            if n == len(task.prompt):       # none has more of it
                break
        if n_best > self._similarity * len(task.prompt):
            task.salt = best.salt
            return best
        return min(idle, key=lambda slot: slot.used)


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens both begin with."""
    n, start = min(len(a), len(b)), 0
    while start < n:
        x, y = list(a[start : min(n, start + RUN)]), list(b[start : min(n, start + RUN)])
        if x != y:
            return start + next(i for i in range(len(x)) if x[i] != y[i])
        start += RUN
    return n
