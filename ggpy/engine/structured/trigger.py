"""Texts that end the free part of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Free(NamedTuple):
    """Where an answer is while it is free."""

    tail: bytes = b""           # the end of its text, as far as it may matter
    in_reasoning: bool = False


class Trigger:
    """Any of `texts`, looked for in what tokens spell, but not between the two of `reasoning`.

    `pieces` are the bytes of each token. An empty first text of `reasoning` has come already.
    """

    def __init__(self, texts: Sequence[bytes], pieces: Sequence[bytes],
                 reasoning: tuple[bytes, bytes] | None = None) -> None:
        self._texts = texts
        self._pieces = pieces
        self._begin, self._end = reasoning or (b"", b"")
        self._n_tail = max(map(len, (*texts, self._begin, self._end))) - 1
        self._starting_with: dict[bytes, list[int]] = {}
        self._containing = [token for token, piece in enumerate(pieces) if any(text in piece for text in texts)]
        self.start = Free(in_reasoning=reasoning is not None and not self._begin)

    def step(self, free: Free, token: int) -> tuple[Free, bytes | None]:
        """Of `token` after `free`: where the answer then is, and what follows a text that is now complete."""
        data, n_old, in_reasoning = free.tail + self._pieces[token], len(free.tail), free.in_reasoning
        while True:
            if in_reasoning:
                end = _first_end(data, (self._end,), n_old)
                is_over = end is not None
            else:
                end = _first_end(data, self._texts, n_old)
                begin = _first_end(data, (self._begin,), n_old) if self._begin else None
                is_over = begin is not None and (end is None or begin < end)
                end = begin if is_over else end
            if end is None:
                return Free(data[max(0, len(data) - self._n_tail):], in_reasoning), None
            data, n_old = data[end:], 0
            if not is_over:
                return Free(), data
            in_reasoning = not in_reasoning

    def parts(self, free: Free) -> tuple[bytes, ...]:
        """What would complete a text after `free`."""
        return tuple(text[n:] for text in self._texts for n in range(1, len(text)) if free.tail.endswith(text[:n]))

    def crossing(self, free: Free) -> Iterator[tuple[int, bytes]]:
        """Tokens that complete a text and go on behind it, with what stands there."""
        for token in {*self._containing, *(token for part in self.parts(free) for token in self._tokens_with(part))}:
            _, rest = self.step(free, token)
            if rest:
                yield token, rest

    def _tokens_with(self, part: bytes) -> list[int]:
        found = self._starting_with.get(part)
        if found is None:
            found = [token for token, piece in enumerate(self._pieces) if piece.startswith(part)]
            self._starting_with[part] = found
        return found


def _first_end(data: bytes, texts: Sequence[bytes], n_old: int) -> int | None:
    """Where the first of `texts` ends that is complete in `data`, of which `n_old` bytes have been looked at."""
    places = ((data.find(text, max(0, n_old - len(text) + 1)), text) for text in texts)
    return min((place + len(text) for place, text in places if place >= 0), default=None)
