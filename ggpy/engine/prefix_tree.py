"""The tree of stored prefixes: what of a prompt is there, and why no more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.prefix_node import PAGE_BYTES, TOKEN_BYTES, Node, to_key, to_tokens

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

    @property
    def num_held_pages(self) -> int:
        """How many of the full pages live sequences hold: sharing those takes no page from anyone."""
        return sum(node.holders[0] > 0 for node in self.path)


class PrefixTree:
    """A root for each salt; `windows` says what a token sees in each KV group. Group 0 is there for every node."""

    def __init__(self, windows: Sequence[int | None]) -> None:
        self.roots: dict[int, Node] = {}
        self.window_of = {group: window for group, window in enumerate(windows) if group > 0 and window is not None}
        self.evicted = EvictedPages()

    def root(self, salt: int) -> Node:
        return self.roots.setdefault(salt, Node(None, [], salt))

    def remove(self, node: Node) -> None:
        """Take a leaf out, and its root if nothing else is under that."""
        parent = node.parent
        parent.remove(node)
        if parent.is_leaf and self.roots.get(parent.salt) is parent:
            del self.roots[parent.salt]

    def find(self, tokens: Sequence[int], salt: int = 0) -> Match:
        """The longest stored prefix of `tokens` but the last after which every window has all that it sees."""
        key = to_key(tokens[:-1])
        root = self.roots.get(salt) or Node(None, [], salt)
        path, tail, n_tail = descend(root, key)
        num_cached = self.num_usable(path, tail, n_tail)
        num_stored = len(path) * PAGE_TOKENS + n_tail
        if num_cached == num_stored:
            cause = self._miss_cause(root, path, tail, n_tail, key)
        else:
            cause = "evicted"       # from a window
            path, tail = path[: num_cached // PAGE_TOKENS], None
        return Match(num_cached, Miss(cause, num_cached), path, tail)

    def num_usable(self, path: list[Node], tail: Node | None, n_tail: int) -> int:
        """How many tokens of a stored path can be reused: the most after which every window has all that it sees."""
        num_stored = len(path) * PAGE_TOKENS + n_tail
        if not self.window_of:
            return num_stored
        num_usable = 0
        run_starts = dict.fromkeys(self.window_of, 0)      # first page of the run of present ones that ends here
        for i, node in enumerate(path if tail is None else [*path, tail]):
            end = min((i + 1) * PAGE_TOKENS, num_stored)
            for group in run_starts:
                if node.pages[group] is None:
                    run_starts[group] = i + 1
            if all(self.first_seen(group, end) >= start for group, start in run_starts.items()):
                num_usable = end
        return num_usable

    def is_held(self, key: bytes, salt: int = 0) -> bool:
        """Whether live sequences hold all pages of `key`, which are full: who holds a page holds those before it."""
        node = self.roots.get(salt)
        for start in range(0, len(key), PAGE_BYTES):
            node = None if node is None else node.children.get(key[start : start + PAGE_BYTES])
            if node is None or not node.holders[0]:
                return False
        return True

    def paths(self) -> Iterator[tuple[int, list[int]]]:
        """Salt and tokens of each stored prefix that no other continues."""
        stack = [(root, b"") for root in self.roots.values()]
        while stack:
            node, key = stack.pop()
            key += node.key
            if node.is_leaf and not node.is_root:
                yield node.salt, to_tokens(key)
            stack += [(child, key) for child in (*node.children.values(), *node.growing)]

    def first_seen(self, group: int, position: int) -> int:
        """The first page that the token at `position` sees in `group`; 0 for group 0, which is held whole."""
        window = self.window_of.get(group)
        return 0 if window is None else max(0, position - window + 1) // PAGE_TOKENS

    def _miss_cause(self, root: Node, path: list[Node], tail: Node | None, n_tail: int, key: bytes) -> MissCause:
        num_stored = len(path) * PAGE_TOKENS + n_tail
        if num_stored * TOKEN_BYTES == len(key):
            return "none"
        node = path[-1] if path else root
        start = len(path) * PAGE_BYTES
        if self.evicted.has(node, key[start : start + PAGE_BYTES], n_tail):
            return "evicted"
        for salt in islice(self.roots, SALTS_TO_COMPARE):
            other_path, _, n_other = descend(self.roots[salt], key)
            if len(other_path) * PAGE_TOKENS + n_other > num_stored:
                return "other_salt"
        others_follow = not node.is_leaf if tail is None else tail.num_tokens > n_tail
        return "edited_history" if num_stored and others_follow else "new_prefix"


def descend(root: Node, key: bytes) -> tuple[list[Node], Node | None, int]:
    """The stored pages that `key` begins with: the full ones, and the one with most of the rest and how many tokens."""
    path, node, start = [], root, 0
    while start + PAGE_BYTES <= len(key) and (child := node.children.get(key[start : start + PAGE_BYTES])):
        path.append(child)
        node = child
        start += PAGE_BYTES
    tail, n_tail = node.closest(key[start : start + PAGE_BYTES]) if start < len(key) else (None, 0)
    return path, tail, n_tail


class EvictedPages:
    """Remembers by hash which pages went last, to tell why a prompt found nothing. A collision only misinforms."""

    def __init__(self, limit: int = 65536) -> None:
        self._limit = limit
        self._hashes: OrderedDict[int, None] = OrderedDict()

    def add(self, node: Node) -> None:
        for key in (node.key, node.key[:TOKEN_BYTES]):
            self._hashes[hash((node.parent.hash, key))] = None
        while len(self._hashes) > self._limit:
            self._hashes.popitem(last=False)

    def has(self, parent: Node, key: bytes, n_common: int) -> bool:
        """Whether the page `key` of `parent` was here, or one that begins with its first token if no other does now."""
        begins_alike = n_common == 0 and hash((parent.hash, key[:TOKEN_BYTES])) in self._hashes
        return begins_alike or hash((parent.hash, key)) in self._hashes
