"""Where the n-grams of a sequence occurred before."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

MOST_NEW = 4096         # tokens taken in at once: one to three milliseconds, for which all answers wait


class NgramIndex:
    """The places where each n-gram of `tokens` ends, latest first: hash chains, as deflate has them (RFC 1951).

    A dictionary leads from an n-gram to where it ended last, and one number per position from there to where it ended
    before. The n-gram itself is the key, as digits of one number, so nothing collides. A new token costs well under a
    microsecond; of many, such as a prompt, `update` takes in MOST_NEW at a time.
    """

    __slots__ = ("_base", "_earlier", "_key", "_last", "_modulus", "_n", "tokens")

    def __init__(self, tokens: list[int], n: int, n_vocab: int) -> None:
        self.tokens = tokens            # grows at its end; `update` then takes in what is new
        self._n = n
        self._base = n_vocab + 2        # digits 1 .. n_vocab + 1: token n_vocab, which no model has, may part texts
        self._modulus = self._base**n
        self._key = 0                   # the n-gram at the end of what is indexed
        self._last: dict[int, int] = {}
        self._earlier = array("i")      # by position: where its n-gram ended before; -1: nowhere

    def update(self) -> bool:
        """Take in what has been added to `tokens`, or the first MOST_NEW of it; whether that was all."""
        tokens, last, earlier, base, modulus = self.tokens, self._last, self._earlier, self._base, self._modulus
        key = self._key
        for i in range(len(earlier), min(len(tokens), len(earlier) + MOST_NEW)):
            key = (key * base + tokens[i] + 1) % modulus
            earlier.append(last.get(key, -1))
            last[key] = i
        self._key = key
        return len(earlier) == len(tokens)

    def own_matches(self, most: int) -> list[int]:
        """Where else the last n-gram of `tokens`, all of which have been taken in, ends: the latest `most`, backwards.
        """
        return self._chain(self._earlier[-1], most) if self._earlier else []

    def matches(self, context: Sequence[int], most: int) -> list[int]:
        """Where the last n-gram of `context` ends in `tokens`: the latest `most`, backwards."""
        if len(context) < self._n:
            return []
        key = 0
        for token in context[-self._n:]:
            key = key * self._base + token + 1
        return self._chain(self._last.get(key, -1), most)

    def _chain(self, position: int, most: int) -> list[int]:
        ends: list[int] = []
        earlier = self._earlier
        while position >= 0 and len(ends) < most:
            ends.append(position)
            position = earlier[position]
        return ends


def common_suffix(a: Sequence[int], a_stop: int, b: Sequence[int], b_stop: int, most: int) -> int:
    """How many tokens a[:a_stop] and b[:b_stop] end with alike, at most `most`."""
    most = min(most, a_stop, b_stop)
    n = 0
    while n < most and a[a_stop - 1 - n] == b[b_stop - 1 - n]:
        n += 1
    return n
