"""Texts that end the free part of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class Trigger:
    """Any of `texts`, looked for in what tokens spell. `pieces` are the bytes of each token."""

    def __init__(self, texts: Sequence[bytes], pieces: Sequence[bytes]) -> None:
        self._texts = texts
        self._pieces = pieces
        self._n_tail = max(map(len, texts)) - 1
        self._starting_with: dict[bytes, list[int]] = {}
        self._containing = [token for token, piece in enumerate(pieces) if any(text in piece for text in texts)]

    def step(self, tail: bytes, token: int) -> tuple[bytes, bytes | None]:
        """Of `token` after text that ends in `tail`: the new tail, and what follows a text that is now complete."""
        data = tail + self._pieces[token]
        ends = [data.find(text, max(0, len(tail) - len(text) + 1)) + len(text) for text in self._texts if text in data]
        if ends:
            return b"", data[min(ends):]
        return data[max(0, len(data) - self._n_tail):], None

    def parts(self, tail: bytes) -> tuple[bytes, ...]:
        """What would complete a text after `tail`."""
        return tuple(text[n:] for text in self._texts for n in range(1, len(text)) if tail.endswith(text[:n]))

    def crossing(self, tail: bytes) -> Iterator[tuple[int, bytes]]:
        """Tokens that complete a text and go on behind it, with what stands there."""
        for token in {*self._containing, *(token for part in self.parts(tail) for token in self._tokens_with(part))}:
            _, rest = self.step(tail, token)
            if rest:
                yield token, rest

    def _tokens_with(self, part: bytes) -> list[int]:
        found = self._starting_with.get(part)
        if found is None:
            found = [token for token, piece in enumerate(self._pieces) if piece.startswith(part)]
            self._starting_with[part] = found
        return found
