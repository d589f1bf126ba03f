"""What texts a regular part of a grammar can begin and go on with: its positions, as Glushkov's automaton has them.

A position is a character class of the part. A text of the part is a walk from a first position to a last one.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ggpy.engine.structured.gbnf import LAST, Chars, Choice, Node, Range, Repeat, Rule, Sequence, Token

# of a part; a larger one is not looked at as a whole
MAX_POSITIONS = 1_000
MAX_NODES = 10_000


@dataclass(slots=True)
class Positions:
    """The automaton of a part; positions are numbers."""

    chars: list[tuple[Range, ...]]
    bytes: list[int]            # of each position, as a set of bits: what the UTF-8 of its characters begins with
    following: list[set[int]]
    first: set[int]
    last: set[int]
    is_nullable: bool
    n_nodes: int = 0

    def first_bytes(self) -> int:
        return union(self.bytes[position] for position in self.first)

    def next_bytes(self, position: int) -> int:
        return union(self.bytes[each] for each in self.following[position])


def union(sets: Iterable[int]) -> int:
    """All bits of `sets`."""
    return functools.reduce(operator.or_, sets, 0)


class TooLargeError(Exception):
    """A part has too many positions."""


def positions_of(node: Node, rules: Mapping[str, Node]) -> Positions:
    """The positions of `node`, which is regular. A repetition counts as any number of times, so more texts may seem
    possible than are. Raises TooLargeError."""
    result = Positions([], [], [], set(), set(), False)
    result.first, result.last, result.is_nullable = _add(result, node, rules)
    return result


Part = tuple[set[int], set[int], bool]      # first and last positions, whether it matches the empty text


def _add(to: Positions, node: Node, rules: Mapping[str, Node]) -> Part:
    """Add the positions of `node`."""
    to.n_nodes += 1
    if to.n_nodes > MAX_NODES:
        raise TooLargeError
    match node:
        case Chars(ranges):
            if len(to.chars) >= MAX_POSITIONS:
                raise TooLargeError
            to.chars.append(ranges)
            to.bytes.append(lead_bytes(ranges))
            to.following.append(set())
            only = {len(to.chars) - 1}
            return only, only, False
        case Rule(name):
            return _add(to, rules[name], rules)
        case Sequence(items):
            return _add_sequence(to, items, rules)
        case Choice(options):
            parts = [_add(to, option, rules) for option in options]
            return (set().union(*(first for first, _, _ in parts)), set().union(*(last for _, last, _ in parts)),
                    any(is_nullable for _, _, is_nullable in parts))
        case Repeat(item, least, most):
            if most == 0:
                return set(), set(), True
            first, last, is_nullable = _add(to, item, rules)
            if most != 1:
                for position in last:
                    to.following[position] |= first
            return first, last, is_nullable or least == 0
        case Token():
            raise AssertionError("a token is not regular")


def _add_sequence(to: Positions, items: tuple[Node, ...], rules: Mapping[str, Node]) -> Part:
    first: set[int] = set()
    last: set[int] = set()
    is_nullable = True
    for item in items:
        item_first, item_last, item_is_nullable = _add(to, item, rules)
        for position in last:
            to.following[position] |= item_first
        if is_nullable:
            first = first | item_first
        last = last | item_last if item_is_nullable else item_last
        is_nullable &= item_is_nullable
    return first, last, is_nullable


def lead_bytes(ranges: tuple[Range, ...]) -> int:
    """The bytes that the UTF-8 of these characters may begin with, as a set of bits."""
    result = 0
    for low, high in ranges:
        for start, stop in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xFFFF), (0x10000, LAST)):
            a, b = max(low, start), min(high, stop)
            if a <= b:
                for byte in range(chr(_no_surrogate(a)).encode()[0], chr(_no_surrogate(b)).encode()[0] + 1):
                    result |= 1 << byte
    return result


def _no_surrogate(code: int) -> int:
    return 0xD7FF if 0xD800 <= code <= 0xDFFF else code


def overlap(a: tuple[Range, ...], b: tuple[Range, ...]) -> bool:
    """Whether a character is in both."""
    i = j = 0
    while i < len(a) and j < len(b):
        if a[i][1] < b[j][0]:
            i += 1
        elif b[j][1] < a[i][0]:
            j += 1
        else:
            return True
    return False
