"""How many prompt tokens a prefix cache could have saved at best, computed from what was sent alone.

A simulation of its own, token by token: it shares nothing with the engine's cache, which is measured against it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Access(NamedTuple):
    """A request as a cache sees it: its prompt, then its answer."""

    tokens: Sequence[int]
    n_prompt: int


@dataclass(frozen=True, slots=True)
class Bound:
    """What an ideal cache does with some requests, one after the other."""

    n_prompt: int       # tokens of all prompts
    n_cached: int       # of these, tokens that it had
    n_unique: int       # distinct tokens that were computed or read: a cache that holds them all never forgets one

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that the cache had."""
        return self.n_cached / self.n_prompt if self.n_prompt else 0.0


def bound(accesses: Iterable[Access], capacity: int | None = None) -> Bound:
    """The hits of a cache that forgets nothing, or one of `capacity` tokens that forgets the least recently used.

    A token is the same if it and all before it are. The last token of a prompt is always computed, and the last one of
    an answer never. The cache forgets the ends of prefixes before their beginnings.
    """
    children: dict[tuple[int, int], int] = {}       # (prefix, token) -> prefix; 0 is the empty one
    cached: OrderedDict[int, None] = OrderedDict()  # prefixes, the least recently used first
    n_prompt = n_cached = 0
    for tokens, length in accesses:
        path = _path(children, tokens[: max(length, len(tokens) - 1)])
        for prefix in path[: length - 1]:
            if prefix not in cached:
                break
            n_cached += 1
        n_prompt += length
        for prefix in reversed(path):               # the beginning last: the longest ends go first
            cached[prefix] = None
            cached.move_to_end(prefix)
        while capacity is not None and len(cached) > capacity:
            cached.popitem(last=False)
    return Bound(n_prompt, n_cached, len(children))


def _path(children: dict[tuple[int, int], int], tokens: Sequence[int]) -> list[int]:
    """A number for each prefix of `tokens`."""
    path, prefix = [], 0
    for token in tokens:
        prefix = children.setdefault((prefix, token), len(children) + 1)
        path.append(prefix)
    return path
