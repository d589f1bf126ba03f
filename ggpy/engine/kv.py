"""Who holds which page of the KV pool."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS
from ggpy.errors import OutOfPagesError

Pages = NDArray[np.int32]


def pages_for(n_tokens: int) -> int:
    """How many pages hold the keys and values of `n_tokens` tokens."""
    return -(-n_tokens // PAGE_TOKENS)


class PagePool:
    """Counts the holders of every page; a page without one is free.

    Pages are handed out in runs of adjacent ones where possible: attention reads those faster than scattered ones.
    """

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self.n_free = n_pages
        self._holders = np.zeros(n_pages, np.int32)

    @property
    def n_held(self) -> int:
        return int(np.count_nonzero(self._holders))

    def holders(self, pages: Pages) -> NDArray[np.int32]:
        """How many hold each of `pages`."""
        return self._holders[pages]

    def all_holders(self) -> NDArray[np.int32]:
        """How many hold each page of the pool; a copy."""
        return self._holders.copy()

    def allocate(self, n: int, after: int | None = None) -> Pages:
        """`n` free pages, now held once; those that follow page `after` if they are free.

        Raises OutOfPagesError, and changes nothing, if there are fewer than `n`.
        """
        if n > self.n_free:
            raise OutOfPagesError(f"{n} KV pages are needed but {self.n_free} of {self.n_pages} are free; "
                                  f"a page holds {PAGE_TOKENS} tokens")
        pages = self._pick(n, after)
        self._holders[pages] = 1
        self.n_free -= n
        return pages

    def share(self, pages: Pages) -> None:
        """Add a holder to each of `pages`, which must be held already."""
        assert (self._holders[pages] > 0).all(), f"free pages cannot be shared: {pages}"
        np.add.at(self._holders, pages, 1)

    def release(self, pages: Pages) -> None:
        """Take a holder from each of `pages`; those left without one are free."""
        np.subtract.at(self._holders, pages, 1)
        assert (self._holders[pages] >= 0).all(), f"pages were released more often than held: {pages}"
        self.n_free += int(np.count_nonzero(self._holders[np.unique(pages)] == 0))

    def _pick(self, n: int, after: int | None) -> Pages:
        free = self._holders == 0
        if after is not None and free[after + 1 : after + 1 + n].sum() == n:
            return np.arange(after + 1, after + 1 + n, dtype=np.int32)
        edges = np.flatnonzero(np.diff(free, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        runs: list[Pages] = []
        for i in np.argsort(starts - ends, kind="stable"):      # the longest first
            if n == 0:
                break
            start, length = int(starts[i]), int(ends[i] - starts[i])
            taken = min(n, length)
            if start > 0:       # the holder of the page before may grow into the first half
                start += min(length // 2, length - taken)
            runs.append(np.arange(start, start + taken, dtype=np.int32))
            n -= taken
        return np.concatenate(runs) if runs else np.empty(0, np.int32)
