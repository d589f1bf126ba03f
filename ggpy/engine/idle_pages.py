"""Pages that nobody holds, in the order in which they go when their room is needed."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator

from ggpy.engine.prefix_node import Node

SWEEP_S = 1.0       # how often those are looked for that need not be kept any more


class IdlePages:
    """The idle pages of one KV group: least recently used first, and behind them those that somebody asked to keep.

    Whoever asks, asks for a node and all before it, so children stand before their parents if they are added so.
    """

    def __init__(self) -> None:
        self._usual: OrderedDict[Node, None] = OrderedDict()
        self._kept: OrderedDict[Node, None] = OrderedDict()
        self._swept_s = 0.0

    def __len__(self) -> int:
        return len(self._usual) + len(self._kept)

    def __iter__(self) -> Iterator[Node]:
        yield from self._usual
        yield from self._kept

    def add(self, node: Node) -> None:
        """Its page is idle from now on."""
        (self._kept if node.keep_until_s > time.monotonic() else self._usual)[node] = None

    def remove(self, node: Node) -> None:
        if node in self._usual:
            del self._usual[node]
        else:
            del self._kept[node]

    def first(self) -> Node:
        """The one that goes next; there must be one."""
        now_s = time.monotonic()
        if self._kept and now_s >= self._swept_s + SWEEP_S:
            self._swept_s = now_s
            for node in [node for node in self._kept if node.keep_until_s <= now_s]:
                del self._kept[node]
                self._usual[node] = None
        return next(iter(self))
