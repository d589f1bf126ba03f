"""A node of the tree of stored prefixes: one page of tokens."""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from ggpy.backends.base import PAGE_TOKENS

TOKEN_BYTES = 8             # a token in a key: a signed 64-bit integer, with room for hashes of images
PAGE_BYTES = PAGE_TOKENS * TOKEN_BYTES


def to_key(tokens: Sequence[int]) -> bytes:
    """Tokens as bytes, TOKEN_BYTES each: what the tree compares and looks up."""
    return array("q", tokens).tobytes()


def to_tokens(key: bytes) -> list[int]:
    return array("q", key).tolist()


def common_tokens(a: bytes, b: bytes) -> int:
    """How many tokens the keys a and b begin with alike."""
    n = min(len(a), len(b))
    differing = int.from_bytes(a[:n], "little") ^ int.from_bytes(b[:n], "little")
    lowest_bit = (differing & -differing).bit_length() - 1      # -1: none differs
    return n // TOKEN_BYTES if lowest_bit < 0 else lowest_bit // (8 * TOKEN_BYTES)


class Node:
    """One page of tokens that follow those of its parent; in each KV group it may have a page of keys and values.

    Children do not change and are shared: full pages, and partly filled last pages of sequences that have ended.
    The `growing` ones each belong to one live sequence, which adds the tokens it computes; others copy from them.
    """

    __slots__ = ("children", "growing", "hash", "holders", "is_kept", "keep_until_s", "key", "pages", "parent", "salt",
                 "sorted_keys")

    def __init__(self, parent: Node | None, pages: Sequence[int | None], salt: int = 0) -> None:
        self.parent: Node = self if parent is None else parent      # a root is its own
        self.salt: int = salt if parent is None else parent.salt
        self.pages = list(pages)
        self.key = b""
        self.holders = [0] * len(pages)     # sequences that may read the page of each group
        self.is_kept: bool = parent is None or parent.is_kept       # when nobody holds it
        self.keep_until_s = 0.0             # until then it is evicted last
        self.children: dict[bytes, Node] = {}
        self.sorted_keys: list[bytes] = []  # of the children
        self.growing: list[Node] = []
        self.hash = hash((salt,))           # of all tokens from the root on, and the salt

    @property
    def is_root(self) -> bool:
        return self.parent is self

    @property
    def num_tokens(self) -> int:
        return len(self.key) // TOKEN_BYTES

    @property
    def is_leaf(self) -> bool:
        return not self.children and not self.growing

    def add(self, child: Node) -> None:
        """Share `child`, whose tokens no longer change."""
        assert child.key not in self.children
        self.children[child.key] = child
        insort(self.sorted_keys, child.key)
        child.hash = hash((self.hash, child.key))

    def remove(self, child: Node) -> None:
        """Take `child` out, if it is there."""
        if self.children.get(child.key) is child:
            del self.children[child.key]
            del self.sorted_keys[bisect_left(self.sorted_keys, child.key)]
        elif child in self.growing:
            self.growing.remove(child)

    def closest(self, key: bytes) -> tuple[Node | None, int]:
        """The child that has most tokens in common with `key` from its beginning on, and how many; None if none has.

        Of several one that has pages in all groups.
        """
        i = bisect_left(self.sorted_keys, key)      # the best of a sorted list stand beside the key
        keys = [*self.sorted_keys[max(i - 1, 0) : i + 1], *(child.key for child in self.growing)]
        most = max((common_tokens(k, key) for k in keys), default=0)
        if most == 0:
            return None, 0
        child = None
        for child in self._beginning_with(key[: most * TOKEN_BYTES]):
            if None not in child.pages:
                break
        return child, most

    def has_copy(self, child: Node) -> bool:
        """Whether another child begins with the tokens of this one and has pages in all groups."""
        return any(other is not child and None not in other.pages for other in self._beginning_with(child.key))

    def _beginning_with(self, key: bytes) -> Iterator[Node]:
        yield from (child for child in self.growing if child.key.startswith(key))
        for i in range(bisect_left(self.sorted_keys, key), len(self.sorted_keys)):
            if not self.sorted_keys[i].startswith(key):
                break
            yield self.children[self.sorted_keys[i]]

    def beginnings(self, key: bytes) -> list[Node]:
        """The children, partly filled, whose tokens are the first of `key` or all of it."""
        lengths = range(TOKEN_BYTES, min(len(key) + TOKEN_BYTES, PAGE_BYTES), TOKEN_BYTES)
        return [child for n in lengths if (child := self.children.get(key[:n]))]
