"""All keys and values that are held or cached: who holds which page, and which prompts find their beginning there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.idle_pages import IdlePages
from ggpy.engine.pages import PagePool, pages_for
from ggpy.engine.prefix_node import PAGE_BYTES, TOKEN_BYTES, Node, to_key
from ggpy.engine.prefix_tree import Match, Miss, MissCause, PrefixTree

__all__ = ["KVCache", "Match", "Miss", "MissCause", "SequenceKV"]


@dataclass(slots=True, eq=False)
class SequenceKV:
    """The pages of a live sequence."""

    salt: int
    page_table: NDArray[np.int32]
    """(n_groups, table_pages): column i has the pages of positions PAGE_TOKENS * i and on."""
    first_held: list[int]
    """Per group the first column that it holds; the window has left those before."""
    miss: Miss = field(init=False)
    """Why it reused no more."""
    num_cached: int = 0
    """Tokens that it reused and did not compute."""
    num_computed: int = 0
    """Tokens whose keys and values lie in its pages, whoever computed them."""
    n_pages: int = 0
    """Columns that have pages."""
    path: list[Node] = field(default_factory=list)
    """The pages with computed tokens; the last one is growing unless it is full."""
    n_reused: int = 0
    """Pages at the beginning of `path` that it found there; it computed the others, or part of them."""
    is_open: bool = True


class KVCache:
    """The page pools of all KV groups, and one tree of the prefixes that live and idle sequences share.

    A page of the tree is *held* in a group while live sequences may read it there, else *idle*. A sequence holds its
    whole path in group 0, and in a group with a window what its next token sees. Pages that are needed are taken from
    idle ones, least recently used first, but those that are to be kept for a while last, half of a pool at most. Group
    0's go leaf by leaf, and a node without it is gone in all groups; one that only loses a window's page stays. A
    prefix is reused up to the last token whose successor sees all it should.

    Nobody writes to a position that is computed, so full pages are shared; a partly filled one is copied.
    """

    def __init__(self, windows: Sequence[int | None], n_pages: Sequence[int], table_pages: int,
                 copy_page: Callable[[int, int, int], None]) -> None:
        """`copy_page(group, source, target)` copies keys and values of all layers of a group.

        windows: per group how many positions a token sees, itself included; None: all. Group 0 is held whole even if
        it has a window. n_pages: pages per group. table_pages: columns of a page table.
        """
        self.windows = tuple(windows)
        self.n_pages = tuple(n_pages)
        self.table_pages = table_pages
        self._copy_page = copy_page
        self._groups = range(len(self.windows))
        self._live: set[SequenceKV] = set()
        self.clear()

    def clear(self) -> None:
        """Forget everything; sequences that are open are closed."""
        for kv in self._live:
            kv.is_open = False
        self._live.clear()
        self._pools = [PagePool(n) for n in self.n_pages]
        # in group 0 a node stands before its parent: sequences let go of their path from its end on
        self._idle = [IdlePages(n) for n in self.n_pages]
        self._tree = PrefixTree(self.windows)

    @property
    def n_free(self) -> tuple[int, ...]:
        return tuple(pool.n_free for pool in self._pools)

    @property
    def n_idle(self) -> tuple[int, ...]:
        """Pages that are cached and can be evicted."""
        return tuple(len(idle) for idle in self._idle)

    @property
    def n_held(self) -> tuple[int, ...]:
        """Pages of live sequences."""
        return tuple(pool.n_pages - pool.n_free - len(idle) for pool, idle in zip(self._pools, self._idle, strict=True))

    def find(self, tokens: Sequence[int], salt: int = 0) -> Match:
        """What `open` would reuse, if it has a page to copy a partly filled one to. Changes nothing."""
        return self._tree.find(tokens, salt)

    def is_held(self, key: bytes, salt: int = 0) -> bool:
        """Whether live sequences hold all pages of `key`, which are full, in group 0; quicker than `find`."""
        return self._tree.is_held(key, salt)

    def paths(self) -> Iterator[tuple[int, list[int]]]:
        """Salt and tokens of each stored prefix that no other continues."""
        return self._tree.paths()

    def first_seen(self, group: int, position: int) -> int:
        """The first page that the token at `position` sees in `group`; 0 for group 0, which is held whole."""
        return self._tree.first_seen(group, position)

    def open(self, tokens: Sequence[int], salt: int = 0) -> SequenceKV:
        """A live sequence that holds the longest stored prefix of `tokens` but the last, which is left to compute.

        If there is no page to copy a partly filled one to, it reuses less.
        """
        page_table = np.zeros((len(self.windows), self.table_pages), np.int32)
        kv = SequenceKV(salt, page_table, [0] * len(self.windows))
        self._live.add(kv)
        self._reuse(kv, tokens)
        kv.num_cached = kv.num_computed
        return kv

    def catch_up(self, kv: SequenceKV, tokens: Sequence[int]) -> int:
        """Reuse what others have computed of `tokens` since: how many tokens more, 0 if not even its next full page.

        So of those that read the same prompt side by side one computes it. Pages reserved ahead are free again.
        """
        start = kv.num_computed // PAGE_TOKENS * PAGE_TOKENS
        parent = kv.path[start // PAGE_TOKENS - 1] if start else self._tree.roots.get(kv.salt)
        if parent is None or not parent.is_kept or start + PAGE_TOKENS >= len(tokens):
            return 0
        page = parent.children.get(to_key(tokens[start : start + PAGE_TOKENS]))
        if page is None or None in page.pages:
            return 0
        num_computed = kv.num_computed
        self._let_go(kv)
        self._reuse(kv, tokens)
        kv.num_cached += kv.num_computed - num_computed
        return kv.num_computed - num_computed

    def reserve(self, kv: SequenceKV, n_tokens: int) -> bool:
        """Give `kv` pages for positions < n_tokens in every group, evicting idle ones.

        False, and nothing has changed, if there are not enough.
        """
        n_pages = pages_for(n_tokens)
        if n_pages <= kv.n_pages:
            return True
        assert n_pages <= self.table_pages, f"{n_tokens} tokens exceed a page table of {self.table_pages} pages"
        if not self._make_room(n_pages - kv.n_pages):
            return False
        for group in self._groups:
            kv.page_table[group, kv.n_pages : n_pages] = self._allocate(kv, group, n_pages - kv.n_pages)
        kv.n_pages = n_pages
        return True

    def advance(self, kv: SequenceKV, tokens: Sequence[int], n_computed: int) -> None:
        """Note that tokens[:n_computed] are computed now: others may reuse them from here on.

        Pages that the window of the next token has left become idle.
        """
        assert n_computed <= kv.n_pages * PAGE_TOKENS, f"{n_computed} tokens do not fit {kv.n_pages} pages"
        key = to_key(tokens[kv.num_computed : n_computed])
        start = 0
        while start < len(key):
            if kv.num_computed % PAGE_TOKENS == 0:
                self._start_page(kv, kv.page_table[:, len(kv.path)].tolist())
            node = kv.path[-1]
            part = key[start : start + PAGE_BYTES - len(node.key)]
            node.key += part
            start += len(part)
            kv.num_computed += len(part) // TOKEN_BYTES
            if len(node.key) == PAGE_BYTES:
                self._share_full_page(kv)
        for group in self._tree.window_of:
            first = self._tree.first_seen(group, kv.num_computed)
            for node in kv.path[kv.first_held[group] : first]:
                self._unhold(node, group)
            kv.first_held[group] = first

    def forget(self, nodes: Iterable[Node], group: int) -> None:
        """Take the idle pages of `nodes` out of a group with a window: they do not hold what they should."""
        for node in nodes:
            if node.pages[group] is not None and not node.holders[group]:
                self._empty(node, group)

    def erase(self, tokens: Sequence[int], salt: int = 0) -> None:
        """Forget what is stored of `tokens`, from its end back to what live sequences or other texts need too."""
        match = self._tree.find([*tokens, 0], salt)
        key = to_key(tokens)[len(match.path) * PAGE_BYTES :]
        tail = [] if match.tail is None or not key.startswith(match.tail.key) else [match.tail]
        if match.tail is not None and not tail:
            return
        for node in reversed([*match.path, *tail]):
            if not node.is_leaf or any(node.holders):
                break
            self._remove(node)

    def keep(self, kv: SequenceKV, n_tokens: int, until_s: float) -> None:
        """Have the first tokens that `kv` has computed evicted after all else, until the time of `time.monotonic`."""
        for node in kv.path[: pages_for(n_tokens)]:
            node.keep_until_s = max(node.keep_until_s, until_s)
            for group in self._tree.window_of:
                if node in self._idle[group]:       # the window has left it
                    self._idle[group].remove(node)
                    self._idle[group].add(node)

    def close(self, kv: SequenceKV) -> None:
        """End a sequence; what it computed stays until its pages are needed. A second time nothing happens."""
        if kv.is_open:
            self._let_go(kv)
            kv.is_open = False
            self._live.discard(kv)

    def discard(self, kv: SequenceKV) -> None:
        """End a sequence whose computation failed: nobody will reuse what it computed.

        Sequences that share it already go on; what they add to it is not reused either.
        """
        if kv.is_open and len(kv.path) > kv.n_reused:
            top = kv.path[kv.n_reused]
            top.parent.remove(top)
            subtree = [top]
            for node in subtree:            # which grows meanwhile
                subtree += [*node.children.values(), *node.growing]
            for node in reversed(subtree):
                node.is_kept = False
                if not node.holders[0]:
                    self._remove(node)
        self.close(kv)

    def _reuse(self, kv: SequenceKV, tokens: Sequence[int]) -> None:
        """Let `kv`, which has no pages, hold the longest stored prefix of `tokens`."""
        match = self.find(tokens, kv.salt)
        kv.miss = match.miss
        self._hold_path(kv, match.path, match.num_cached)
        if match.tail is not None:
            key = to_key(tokens[len(match.path) * PAGE_TOKENS : match.num_cached])
            if not self._reuse_tail(kv, match.tail, key):
                self._release_path(kv)
                num_cached = self._tree.num_usable(match.path, None, 0)
                self._hold_path(kv, match.path[: num_cached // PAGE_TOKENS], num_cached)
                kv.miss = Miss("evicted", num_cached)
        kv.num_computed = kv.miss.position

    def _let_go(self, kv: SequenceKV) -> None:
        """Keep what `kv` has computed for others, and give up all its pages."""
        for group, pool in enumerate(self._pools):
            pool.free(kv.page_table[group, len(kv.path) : kv.n_pages].tolist())
        if kv.path and len(kv.path[-1].key) < PAGE_BYTES:
            self._share_partial_page(kv.path[-1])
        self._release_path(kv)

    def _hold_path(self, kv: SequenceKV, path: list[Node], num_cached: int) -> None:
        """Hold of `path` what the token at position `num_cached` sees; group 0 whole."""
        kv.path, kv.n_pages, kv.n_reused = list(path), len(path), len(path)
        for group in self._groups:
            first = kv.first_held[group] = self._tree.first_seen(group, num_cached)
            for i, node in enumerate(path[first:], first):
                kv.page_table[group, i] = self._hold(node, group)

    def _release_path(self, kv: SequenceKV) -> None:
        for group in reversed(self._groups):        # group 0 last: nodes that are not kept go with it
            for node in reversed(kv.path[kv.first_held[group] :]):
                self._unhold(node, group)
        kv.path, kv.n_pages = [], 0

    def _reuse_tail(self, kv: SequenceKV, source: Node, key: bytes) -> bool:
        """Let `kv` grow from the first tokens, `key`, of the page `source`; False if there is no page to copy it to.

        A page that nobody else needs is not copied but taken over, if it has no other tokens or nothing else is left.
        """
        is_free_to_take = source.is_leaf and not source.holders[0]
        if is_free_to_take and source.key == key:
            self._take_over(kv, source, key)
            return True
        for group in self._groups:
            self._hold(source, group)               # not to be evicted now
        has_room = self._make_room(1)
        if has_room:
            pages = [self._allocate(kv, group, 1)[0] for group in self._groups]
            for group, page in enumerate(pages):
                self._copy_page(group, _present(source, group), page)
            self._start_page(kv, pages)
            kv.path[-1].key = key
        for group in reversed(self._groups):
            self._unhold(source, group)
        if not has_room and is_free_to_take:
            self._take_over(kv, source, key)
        return has_room or is_free_to_take

    def _take_over(self, kv: SequenceKV, node: Node, key: bytes) -> None:
        """Make `node`, which nobody holds and of which only `key` stays, the growing page of `kv`."""
        node.parent.remove(node)
        node.parent.growing.append(node)
        node.key = key
        for group in self._groups:
            kv.page_table[group, len(kv.path)] = self._hold(node, group)
        kv.path.append(node)
        kv.n_pages = len(kv.path)

    def _start_page(self, kv: SequenceKV, pages: list[int]) -> None:
        """Let `pages`, one per group, be the growing page of `kv`."""
        parent = kv.path[-1] if kv.path else self._tree.root(kv.salt)
        node = Node(parent, pages)
        node.holders = [1] * len(pages)
        parent.growing.append(node)
        kv.page_table[:, len(kv.path)] = pages
        kv.path.append(node)
        kv.n_pages = max(kv.n_pages, len(kv.path))

    def _share_full_page(self, kv: SequenceKV) -> None:
        """The growing page of `kv` is full: share it, or use the one that is stored with the same tokens instead."""
        node = kv.path[-1]
        twin = node.parent.children.get(node.key)
        if twin is None:
            self._add(node)
            return
        self._drop_beginnings(node)
        node.parent.remove(node)
        for group, pool in enumerate(self._pools):
            page = _present(node, group)
            if twin.pages[group] is None:       # the window has lost it: now it is back
                twin.pages[group] = page
                twin.holders[group] = 1
            else:
                kv.page_table[group, len(kv.path) - 1] = self._hold(twin, group)
                pool.free([page])
        kv.path[-1] = twin
        if kv.n_reused == len(kv.path) - 1:
            kv.n_reused += 1

    def _share_partial_page(self, node: Node) -> None:
        """The owner of the growing page `node` ends: keep it, unless another page has its tokens too."""
        if node.parent.has_copy(node):
            node.is_kept = False
        elif node.is_kept:
            self._add(node)

    def _add(self, node: Node) -> None:
        """Share a page that was growing."""
        self._drop_beginnings(node)
        node.parent.growing.remove(node)
        node.parent.add(node)

    def _drop_beginnings(self, node: Node) -> None:
        """Remove the pages whose tokens are the first of `node`, which has pages in all groups: they are of no use."""
        for shorter in node.parent.beginnings(node.key):
            self._remove(shorter)

    def _hold(self, node: Node, group: int) -> int:
        """Add a holder; returns the page."""
        if node.holders[group] == 0:
            self._idle[group].remove(node)
        node.holders[group] += 1
        return _present(node, group)

    def _unhold(self, node: Node, group: int) -> None:
        node.holders[group] -= 1
        if node.holders[group] == 0:
            self._idle[group].add(node)         # used last
            if group == 0 and not node.is_kept:
                self._remove(node)

    def _allocate(self, kv: SequenceKV, group: int, n: int) -> list[int]:
        """`n` pages that are free, for the columns of `kv` behind those it has."""
        after = int(kv.page_table[group, kv.n_pages - 1]) if kv.n_pages else None
        return self._pools[group].allocate(n, after)

    def _make_room(self, n: int) -> bool:
        """Let `n` pages of each group be free, evicting idle ones. False, and nothing has changed: there are fewer."""
        if any(pool.n_free + len(idle) < n for pool, idle in zip(self._pools, self._idle, strict=True)):
            return False
        for group, pool in enumerate(self._pools):
            while pool.n_free < n:
                node = self._idle[group].first()
                if group == 0:
                    self._tree.evicted.add(node)
                    self._remove(node)
                else:
                    self._empty(node, group)
        return True

    def _remove(self, node: Node) -> None:
        """Free the pages of a node that nobody holds and take it out of the tree."""
        for group in self._groups:
            self._empty(node, group)
        self._tree.remove(node)

    def _empty(self, node: Node, group: int) -> None:
        """Free the idle page of a node in one group, if it has one."""
        page = node.pages[group]
        if page is not None:
            self._idle[group].remove(node)
            self._pools[group].free([page])
            node.pages[group] = None


def _present(node: Node, group: int) -> int:
    page = node.pages[group]
    assert page is not None, f"page of KV group {group} is gone"
    return page
