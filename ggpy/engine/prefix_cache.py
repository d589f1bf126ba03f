"""Keys and values of sequences that no longer run, so that a prompt that begins like one of them is read from there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.kv import PagePool, Pages, pages_for

TAKE_OVER_LOSS = 64         # tokens of a kept sequence that may be given up to reuse its last, partly filled page


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Tokens whose keys and values lie in `pages`, each page held once by the cache."""

    tokens: NDArray[np.int64]
    pages: Pages


class PrefixCache:
    """Kept sequences, the least recently used first; they go when their pages are needed.

    Whole pages are shared: nobody writes to the page of a position that is computed. The page that a common prefix
    ends in can only be written to by one sequence, so it is reused by taking the kept sequence over.
    """

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.kept: list[Kept] = []

    def keep(self, tokens: Sequence[int], pages: Pages) -> None:
        """Take over the caller's hold on `pages`, in which the keys and values of `tokens` lie."""
        n_used = pages_for(len(tokens))
        self.pool.release(pages[n_used:])
        if n_used:
            self.kept.append(Kept(np.asarray(tokens, np.int64), pages[:n_used]))

    def adopt(self, tokens: Sequence[int]) -> tuple[Pages, int]:
        """Pages with the keys and values of the longest kept prefix of `tokens`, held for the caller, and its length.

        The last token is never part of it: computing one token at least gives the logits that are wanted.
        """
        wanted = np.asarray(tokens[:-1], np.int64)
        lengths = [common_prefix(kept.tokens, wanted) for kept in self.kept]
        best = max(range(len(lengths)), key=lambda i: (lengths[i], i), default=None)
        if best is None or lengths[best] == 0:
            return np.empty(0, np.int32), 0
        kept, length = self.kept.pop(best), lengths[best]
        n_pages = pages_for(length)
        if len(kept.tokens) - length <= TAKE_OVER_LOSS and self._is_ours_alone(kept.pages[length // PAGE_TOKENS:]):
            self.pool.release(kept.pages[n_pages:])
            return kept.pages[:n_pages], length
        self.kept.append(kept)          # used last
        shared = kept.pages[: length // PAGE_TOKENS]
        self.pool.share(shared)
        return shared, len(shared) * PAGE_TOKENS

    def reclaim(self, n_pages: int) -> bool:
        """Let go of kept sequences until `n_pages` are free; False, and all is kept, if there are fewer even then."""
        n_missing = n_pages - self.pool.n_free
        if n_missing <= 0:
            return True
        holders = self.pool.all_holders()       # as they would be
        for n_gone, kept in enumerate(self.kept, 1):
            holders[kept.pages] -= 1
            n_missing -= int(np.count_nonzero(holders[kept.pages] == 0))
            if n_missing <= 0:
                for gone in self.kept[:n_gone]:
                    self.pool.release(gone.pages)
                del self.kept[:n_gone]
                return True
        return False

    def _is_ours_alone(self, pages: Pages) -> bool:
        return bool((self.pool.holders(pages) == 1).all())


def common_prefix(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """How many tokens a and b begin with alike."""
    n = min(len(a), len(b))
    differs = a[:n] != b[:n]
    return int(np.argmax(differs)) if differs.any() else n
