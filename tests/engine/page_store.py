"""A stand-in for a backend's KV pools: pages hold the tokens themselves, so that what a sequence reads can be seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.kv_cache import KVCache, SequenceKV

UNWRITTEN = -1


class PageStore:
    """Pages of `n_pages` per group, and a cache over them that copies them."""

    def __init__(self, windows: Sequence[int | None], n_pages: Sequence[int], table_pages: int = 64) -> None:
        self.pages = [np.full((n, PAGE_TOKENS), UNWRITTEN, np.int64) for n in n_pages]
        self.num_copied = 0
        self.cache = KVCache(windows, n_pages, table_pages, self.copy_page)

    def copy_page(self, group: int, source: int, target: int) -> None:
        self.pages[group][target] = self.pages[group][source]
        self.num_copied += 1

    def compute(self, kv: SequenceKV, tokens: Sequence[int], upto: int | None = None) -> bool:
        """Compute tokens[:upto], as a step of a model would; False if there are no pages."""
        n = len(tokens) if upto is None else upto
        if not self.cache.reserve(kv, n):
            return False
        for position in range(kv.num_computed, n):
            for group, pages in enumerate(self.pages):
                page = kv.page_table[group, position // PAGE_TOKENS]
                pages[page, position % PAGE_TOKENS] = tokens[position]
        self.cache.advance(kv, tokens, n)
        return True

    def run(self, tokens: Sequence[int], salt: int = 0) -> SequenceKV:
        """Open a sequence, compute all of its tokens and close it."""
        kv = self.cache.open(tokens, salt)
        assert self.compute(kv, tokens), "the pool is too small"
        self.cache.close(kv)
        return kv

    def visible(self, kv: SequenceKV, group: int) -> list[int]:
        """The computed tokens that the next one of `kv` sees in `group`, as they lie in the pages."""
        window = self.cache.windows[group]
        first = 0 if window is None else max(0, kv.num_computed - window + 1)
        return [int(self.pages[group][kv.page_table[group, p // PAGE_TOKENS], p % PAGE_TOKENS])
                for p in range(first, kv.num_computed)]
