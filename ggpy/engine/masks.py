"""The masks of a step's constrained rows, written while its forward pass runs."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ggpy.engine.structured.constraint import Constraint

Masks = NDArray[np.int32]
Work = tuple["Constraint", Sequence[int]]   # a constraint, and the drafts after which it is asked too


class MaskWriter:
    """Writes masks in a thread of its own; the forward pass holds no lock that it would need."""

    def __init__(self, n_vocab: int) -> None:
        self._n_words = -(-n_vocab // 32)
        self._masks: Masks = np.empty((0, self._n_words), np.int32)
        self._executor: ThreadPoolExecutor | None = None
        self._pending: deque[tuple[Masks, Future[None]]] = deque()

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
            masks = self._masks[first : first + 1 + len(drafts)]
            first += len(masks)
            self._pending.append((masks, self._executor.submit(constraint.fill, masks, drafts)))

    def take(self) -> Masks:
        """The masks (1 + drafts, n_words) of the next item of `work`: a bit for each token, set if it is allowed.

        Raises what Constraint.fill does.
        """
        masks, written = self._pending.popleft()
        written.result()
        return masks

    def close(self) -> None:
        """End the thread."""
        if self._executor is not None:
            self._executor.shutdown()
