"""What ends a repetition for DRY: the tokens that spell its sequence breakers."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggpy.text import Tokenizer

MAX_BREAKER_BYTES = 40
MAX_TAIL_TOKENS = 20
MAX_REMEMBERED = 16         # sets of breakers, for each tokenizer


class Breakers(NamedTuple):
    """All ways in which tokens can spell a breaker, as "sample_dry.dry" reads them."""

    starts: NDArray[np.int32]       # by token: where in `tails` its entry is; 0: it begins no breaker
    tails: NDArray[np.int32]        # entries: how many ways to go on, then for each how many tokens, and these

    @classmethod
    def of(cls, tails: Mapping[int, Sequence[tuple[int, ...]]]) -> Breakers:
        """Of ways to go on by the token that a breaker begins in; () where the token contains all of it."""
        starts, entries = np.zeros(max(tails, default=-1) + 1, np.int32), [0]
        for token, ways in tails.items():
            starts[token] = len(entries)
            entries.append(len(ways))
            for way in sorted(ways, key=len):
                entries += [len(way), *way]
        return cls(starts, np.array(entries, np.int32))


NO_BREAKERS = Breakers.of({})

_known: weakref.WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], Breakers]] = weakref.WeakKeyDictionary()


def breakers_of(tokenizer: Tokenizer, texts: tuple[str, ...]) -> Breakers:
    """All ways in which tokens can spell one of `texts`. This reads the whole vocabulary, so it is remembered."""
    known = _known.setdefault(tokenizer, {})
    breakers = known.get(texts)
    if breakers is None:
        breakers = Breakers.of(_spellings(tokenizer, [text.encode()[:MAX_BREAKER_BYTES] for text in texts]))
        for oldest in list(known)[: max(0, len(known) + 1 - MAX_REMEMBERED)]:
            known.pop(oldest, None)         # unless another thread has
        known[texts] = breakers
    return breakers


def _spellings(tokenizer: Tokenizer, texts: list[bytes]) -> dict[int, list[tuple[int, ...]]]:
    found: dict[int, list[tuple[int, ...]]] = {}
    pieces = list(map(tokenizer.token_bytes, range(tokenizer.n_vocab)))
    for text in texts:
        tails_from = [tuple(tokenizer.encode(text[n:], add_special=False)[:MAX_TAIL_TOKENS])
                      for n in range(len(text))]
        first = text[:1]
        for token, piece in enumerate(pieces):
            if first in piece:
                tails = found.setdefault(token, [])
                tails += [tail for tail in _tails(text, piece, tails_from) if tail not in tails]
    return {token: tails for token, tails in found.items() if tails}


def _tails(text: bytes, piece: bytes, tails_from: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """How `text` goes on after a token that spells `piece`; `tails_from` are the tokens of text[n:] for each n."""
    if text in piece:
        return [()]
    return [tails_from[n] for n in range(min(len(piece), len(text) - 1), 0, -1) if piece.endswith(text[:n])]
