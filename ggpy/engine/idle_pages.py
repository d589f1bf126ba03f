"""Pages that nobody holds, in the order in which they go when their room is needed."""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from collections.abc import Iterator
from time import monotonic

from ggpy.engine.prefix_node import Node


class IdlePages:
    """The idle pages of one KV group: least recently used first, and behind them those that somebody asked to keep.

    Of these there are at most half as many as the group has pages, and no one client can fill it for long: the least
    recently used of more, and those whose time is over, stand among the others again where their last use puts them.

    Whoever asks, asks for a node and all before it, so children stand before their parents if they are added so.
    """

    def __init__(self, n_pages: int) -> None:
        self._most_kept = n_pages // 2
        self._used: dict[Node, int] = {}            # all that are idle, by when they were added
        self._kept: OrderedDict[Node, None] = OrderedDict()
        self._usual: list[tuple[int, Node]] = []    # a heap of the others, and of entries that `_used` has no more
        self._n_added = 0
        self._swept_s = 0.0         # none whose time was over by then is kept
        self._over_s = math.inf     # no time of those that are kept is over before

    def __len__(self) -> int:
        return len(self._used)

    def __contains__(self, node: Node) -> bool:
        return node in self._used

    def __iter__(self) -> Iterator[Node]:
        yield from sorted(self._used.keys() - self._kept.keys(), key=self._used.__getitem__)
        yield from self._kept

    def add(self, node: Node) -> None:
        """Its page is idle from now on."""
        self._sweep()
        self._n_added += 1
        self._used[node] = self._n_added
        if node.keep_until_s <= self._swept_s:      # of one time for all, or a parent might go before its child
            self._add_usual(node)
            return
        self._kept[node] = None
        self._over_s = min(self._over_s, node.keep_until_s)
        if len(self._kept) > self._most_kept:
            self._add_usual(self._kept.popitem(last=False)[0])

    def remove(self, node: Node) -> None:
        del self._used[node]
        self._kept.pop(node, None)

    def first(self) -> Node:
        """The one that goes next; there must be one."""
        self._sweep()
        while self._usual:
            used, node = self._usual[0]
            if self._used.get(node) == used:
                return node
            heapq.heappop(self._usual)
        return next(iter(self._kept))

    def _add_usual(self, node: Node) -> None:
        if len(self._usual) > 2 * len(self._used):
            self._usual = [entry for entry in self._usual if self._used.get(entry[1]) == entry[0]]
            heapq.heapify(self._usual)
        heapq.heappush(self._usual, (self._used[node], node))

    def _sweep(self) -> None:
        """Let go of those that need not be kept any more."""
        now_s = monotonic()
        if now_s < self._over_s:
            return
        self._swept_s = now_s
        for node in [node for node in self._kept if node.keep_until_s <= now_s]:
            del self._kept[node]
            self._add_usual(node)
        self._over_s = min((node.keep_until_s for node in self._kept), default=math.inf)
