"""All keys and values that are held or cached: who holds which page, and which prompts find their beginning there."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.pages import PagePool, pages_for
from ggpy.engine.prefix_tree import PAGE_BYTES, TOKEN_BYTES, EvictedPages, Node, to_key, to_tokens

MissCause = Literal["none", "new_prefix", "edited_history", "evicted", "other_salt"]
SALTS_TO_COMPARE = 64       # how many others a miss is looked for under


@dataclass(frozen=True, slots=True)
class Miss:
    """Why no more of a prompt was reused.

    none: all was, but for the last token. new_prefix: what follows was never seen. edited_history: after a beginning
    that is stored, other tokens are. evicted: it was here, but its pages were needed, or none was free to copy it to.
    other_salt: it lies under another salt.
    """

    cause: MissCause
    position: int
    """The first token that was not reused."""


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """The longest stored prefix of a prompt."""

    num_cached: int
    miss: Miss
    path: list[Node]
    """The full pages it lies in."""
    tail: Node | None
    """The page whose first tokens are the rest of it, if it does not end with a page."""


@dataclass(slots=True, eq=False)
class SequenceKV:
    """The pages of a live sequence."""

    salt: int
    page_table: NDArray[np.int32]
    """(n_groups, table_pages): column i has the pages of positions PAGE_TOKENS * i and on."""
    first_held: list[int]
    """Per group the first column that it holds; the window has left those before."""
    num_computed: int = 0
    num_cached: int = 0
    """Tokens reused when it was opened."""
    miss: Miss = Miss("new_prefix", 0)
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
    idle ones, least recently used first. Group 0's go leaf by leaf, and a node without it is gone in all groups; one
    that only loses a window's page stays. A prefix is reused up to the last token whose successor sees all it should.

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
        self._window_of = {g: w for g, w in enumerate(self.windows) if g > 0 and w is not None}
        self._evicted = EvictedPages()
        self._live: set[SequenceKV] = set()
        self.clear()

    def clear(self) -> None:
        """Forget everything; sequences that are open are closed."""
        for kv in self._live:
            kv.is_open = False
        self._live.clear()
        self._pools = [PagePool(n) for n in self.n_pages]
        # in group 0 a node stands before its parent: sequences let go of their path from its end on
        self._idle: list[OrderedDict[Node, None]] = [OrderedDict() for _ in self._groups]
        self._roots: dict[int, Node] = {}
        self._evicted.clear()

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
        key = to_key(tokens[:-1])
        root = self._roots.get(salt) or Node(None, [], salt)
        path, tail, n_tail = descend(root, key)
        num_cached = self._num_usable(path, tail, n_tail)
        num_stored = len(path) * PAGE_TOKENS + n_tail
        if num_cached == num_stored:
            cause = self._miss_cause(root, path, tail, n_tail, key)
        else:
            cause = "evicted"       # from a window
            path, tail = path[: num_cached // PAGE_TOKENS], None
        return Match(num_cached, Miss(cause, num_cached), path, tail)

    def open(self, tokens: Sequence[int], salt: int = 0) -> SequenceKV:
        """A live sequence that holds the longest stored prefix of `tokens` but the last, which is left to compute.

        If there is no page to copy a partly filled one to, it reuses less.
        """
        match = self.find(tokens, salt)
        kv = SequenceKV(salt, np.zeros((len(self.windows), self.table_pages), np.int32), [0] * len(self.windows))
        self._hold_path(kv, match.path, match.num_cached)
        if match.tail is not None:
            key = to_key(tokens[len(match.path) * PAGE_TOKENS : match.num_cached])
            if not self._reuse_tail(kv, match.tail, key):
                self._release_path(kv)
                num_cached = self._num_usable(match.path, None, 0)
                self._hold_path(kv, match.path[: num_cached // PAGE_TOKENS], num_cached)
                match = Match(num_cached, Miss("evicted", num_cached), kv.path, None)
        kv.num_computed = kv.num_cached = match.num_cached
        kv.miss = match.miss
        self._live.add(kv)
        return kv

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
        for group in self._window_of:
            first = self.first_seen(group, kv.num_computed)
            for node in kv.path[kv.first_held[group] : first]:
                self._unhold(node, group)
            kv.first_held[group] = first

    def forget(self, nodes: Iterable[Node], group: int) -> None:
        """Take the idle pages of `nodes` out of a group with a window: they do not hold what they should."""
        for node in nodes:
            if node.pages[group] is not None and not node.holders[group]:
                self._empty(node, group)

    def close(self, kv: SequenceKV) -> None:
        """End a sequence; what it computed stays until its pages are needed. A second time nothing happens."""
        if not kv.is_open:
            return
        for group, pool in enumerate(self._pools):
            pool.free(kv.page_table[group, len(kv.path) : kv.n_pages].tolist())
        if kv.path and len(kv.path[-1].key) < PAGE_BYTES:
            self._share_partial_page(kv.path[-1])
        self._release_path(kv)
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

    def paths(self) -> Iterator[tuple[int, list[int]]]:
        """Salt and tokens of each stored prefix that no other continues."""
        stack = [(root, b"") for root in self._roots.values()]
        while stack:
            node, key = stack.pop()
            key += node.key
            if node.is_leaf and not node.is_root:
                yield node.salt, to_tokens(key)
            stack += [(child, key) for child in (*node.children.values(), *node.growing)]

    def first_seen(self, group: int, position: int) -> int:
        """The first page that the token at `position` sees in `group`; 0 for group 0, which is held whole."""
        window = self._window_of.get(group)
        return 0 if window is None else max(0, position - window + 1) // PAGE_TOKENS

    def _num_usable(self, path: list[Node], tail: Node | None, n_tail: int) -> int:
        """How many tokens of a stored path can be reused: the most after which every window has all that it sees."""
        num_stored = len(path) * PAGE_TOKENS + n_tail
        if not self._window_of:
            return num_stored
        num_usable = 0
        run_starts = dict.fromkeys(self._window_of, 0)      # first page of the run of present ones that ends here
        for i, node in enumerate(path if tail is None else [*path, tail]):
            end = min((i + 1) * PAGE_TOKENS, num_stored)
            for group in run_starts:
                if node.pages[group] is None:
                    run_starts[group] = i + 1
            if all(self.first_seen(group, end) >= start for group, start in run_starts.items()):
                num_usable = end
        return num_usable

    def _miss_cause(self, root: Node, path: list[Node], tail: Node | None, n_tail: int, key: bytes) -> MissCause:
        num_stored = len(path) * PAGE_TOKENS + n_tail
        if num_stored * TOKEN_BYTES == len(key):
            return "none"
        node = path[-1] if path else root
        start = len(path) * PAGE_BYTES
        if self._evicted.has(node, key[start : start + PAGE_BYTES], n_tail):
            return "evicted"
        for salt in islice(self._roots, SALTS_TO_COMPARE):
            other_path, _, n_other = descend(self._roots[salt], key)
            if len(other_path) * PAGE_TOKENS + n_other > num_stored:
                return "other_salt"
        others_follow = not node.is_leaf if tail is None else tail.num_tokens > n_tail
        return "edited_history" if num_stored and others_follow else "new_prefix"

    def _hold_path(self, kv: SequenceKV, path: list[Node], num_cached: int) -> None:
        """Hold of `path` what the token at position `num_cached` sees; group 0 whole."""
        kv.path, kv.n_pages, kv.n_reused = list(path), len(path), len(path)
        for group in self._groups:
            first = kv.first_held[group] = self.first_seen(group, num_cached)
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
        parent = kv.path[-1] if kv.path else self._roots.setdefault(kv.salt, Node(None, [], kv.salt))
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
        other, n_common = node.parent.closest(node.key, besides=node)
        if other is not None and n_common == node.num_tokens and None not in other.pages:
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
            del self._idle[group][node]
        node.holders[group] += 1
        return _present(node, group)

    def _unhold(self, node: Node, group: int) -> None:
        node.holders[group] -= 1
        if node.holders[group] == 0:
            self._idle[group][node] = None          # used last
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
                node = next(iter(self._idle[group]))
                if group == 0:
                    self._evicted.add(node)
                    self._remove(node)
                else:
                    self._empty(node, group)
        return True

    def _remove(self, node: Node) -> None:
        """Free the pages of a node that nobody holds and take it out of the tree."""
        for group in self._groups:
            self._empty(node, group)
        parent = node.parent
        parent.remove(node)
        if parent.is_leaf and self._roots.get(parent.salt) is parent:
            del self._roots[parent.salt]

    def _empty(self, node: Node, group: int) -> None:
        """Free the idle page of a node in one group, if it has one."""
        page = node.pages[group]
        if page is not None:
            del self._idle[group][node]
            self._pools[group].free([page])
            node.pages[group] = None


def descend(root: Node, key: bytes) -> tuple[list[Node], Node | None, int]:
    """The stored pages that `key` begins with: the full ones, and the one with most of the rest and how many tokens."""
    path, node, start = [], root, 0
    while start + PAGE_BYTES <= len(key) and (child := node.children.get(key[start : start + PAGE_BYTES])):
        path.append(child)
        node = child
        start += PAGE_BYTES
    tail, n_tail = node.closest(key[start : start + PAGE_BYTES]) if start < len(key) else (None, 0)
    return path, tail, n_tail


def _present(node: Node, group: int) -> int:
    page = node.pages[group]
    assert page is not None, f"page of KV group {group} is gone"
    return page
