"""The masks of a step's constrained rows, written while its forward pass runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ggpy.errors import GrammarError

if TYPE_CHECKING:
    from ggpy.engine.structured.constraint import Constraint

Masks = NDArray[np.int32]
Work = tuple["Constraint", Sequence[int]]   # a constraint, and the drafts after which it is asked too


@dataclass(slots=True)
class _Item:
    """One of a step's constraints, and where its masks are written."""

    constraint: Constraint
    drafts: Sequence[int]
    masks: Masks
    error: GrammarError | None = None


def _write(items: Sequence[_Item]) -> None:
    for item in items:
        try:
            item.constraint.fill(item.masks, item.drafts)
        except GrammarError as error:
            item.error = error      # its request's alone


class MaskWriter:
    """Writes masks in a thread of its own; the forward pass holds no lock that it would need."""

    def __init__(self, n_vocab: int) -> None:
        self._n_words = -(-n_vocab // 32)
        self._masks: Masks = np.empty((0, self._n_words), np.int32)
        self._executor: ThreadPoolExecutor | None = None
        self._pending: deque[_Item] = deque()
        self._written: Future[None] | None = None

    def start(self, work: Sequence[Work]) -> None:
        """Begin to write the masks of `work`; those of the step before are not valid any more."""
        self._pending.clear()
        if not work:
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ggpy-masks")
        n_rows = sum(1 + len(drafts) for _, drafts in work)
        if n_rows > len(self._masks):
            self._masks = np.empty((n_rows, self._n_words), np.int32)
        first = 0
        for constraint, drafts in work:
            self._pending.append(_Item(constraint, drafts, self._masks[first : first + 1 + len(drafts)]))
            first += 1 + len(drafts)
        # one job, for each costs a switch of threads where all cores compute
        self._written = self._executor.submit(_write, tuple(self._pending))

    def take(self) -> Masks:
        """The masks (1 + drafts, n_words) of the next item of `work`: a bit for each token, set if it is allowed.

        Raises what Constraint.fill does.
        """
        assert self._written is not None
        self._written.result()
        item = self._pending.popleft()
        if item.error is not None:
            raise item.error
        return item.masks

    def close(self) -> None:
        """End the thread."""
        if self._executor is not None:
            self._executor.shutdown()
