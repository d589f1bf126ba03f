"""Which pages of a KV pool are free."""

from __future__ import annotations

from collections.abc import Sequence

from ggpy.backends.base import PAGE_TOKENS, KVGroup

ROOM_TO_GROW = 32       # pages left free, if possible, between what different sequences are given


def pages_for(n_tokens: int) -> int:
    """How many pages hold the keys and values of `n_tokens` tokens."""
    return -(-n_tokens // PAGE_TOKENS)


def pool_pages(groups: Sequence[KVGroup], pool_tokens: int, max_batch_tokens: int) -> tuple[int, ...]:
    """Pages for the pool of each group, so that `pool_tokens` tokens fit the layers that see all of them.

    A window's pool is half as large, or what one request needs while it reads its prompt if that is more: live requests
    need their last positions there, and what the rest caches lets prompts branch off further back. Group 0 is held
    whole, whatever its window.
    """
    full = pages_for(pool_tokens)
    return tuple(full if i == 0 or group.window is None else
                 min(full, max(full // 2, pages_for(group.window + max_batch_tokens) + 1))
                 for i, group in enumerate(groups))


class PagePool:
    """The pages of one KV group, free or taken.

    Pages are handed out in runs of adjacent ones where possible: attention reads those faster than scattered ones.
    """

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self.n_free = n_pages
        self._is_free = bytearray(b"\1") * n_pages

    def allocate(self, n: int, after: int | None = None) -> list[int]:
        """`n` free pages, now taken; those that follow page `after` if they are free. There must be `n`."""
        assert n <= self.n_free, f"{n} pages are wanted but {self.n_free} are free"
        pages: list[int] = []
        while len(pages) < n:
            start, length = self._adjacent(n - len(pages), after) or self._elsewhere(n - len(pages))
            self._is_free[start : start + length] = bytes(length)
            pages += range(start, start + length)
            after = pages[-1]
        self.n_free -= n
        return pages

    def free(self, pages: list[int]) -> None:
        for page in pages:
            assert not self._is_free[page], f"page {page} is free already"
            self._is_free[page] = 1
        self.n_free += len(pages)

    def _adjacent(self, n: int, after: int | None) -> tuple[int, int] | None:
        """Start and length of the run of up to `n` free pages right behind page `after`; None: there is none."""
        if after is None:
            return None
        end = min(after + 1 + n, self.n_pages)
        taken = self._is_free.find(0, after + 1, end)
        length = (end if taken < 0 else taken) - (after + 1)
        return (after + 1, length) if length else None

    def _elsewhere(self, n: int) -> tuple[int, int]:
        """Start and length of a run of up to `n` free pages, with room for its neighbours to grow if there is any."""
        at = self._is_free.find(b"\1" * (ROOM_TO_GROW + n + ROOM_TO_GROW))
        if at >= 0:
            return (at + ROOM_TO_GROW if at else 0), n
        while (at := self._is_free.find(b"\1" * n)) < 0:
            n = (n + 1) // 2
        return at, n
