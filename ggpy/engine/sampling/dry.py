"""DRY: a penalty on tokens that would go on with a repetition (after p-e-w's sampler of text-generation-webui)."""

from __future__ import annotations

import math
import weakref
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ggpy.engine.sampling.candidates import Candidates, Ids
from ggpy.text import Tokenizer

MAX_BREAKER_BYTES = 40
MAX_TAIL_TOKENS = 20
MAX_REMEMBERED = 16         # sets of breakers, for each tokenizer
LOG_FLOAT32_MAX = 88.7228391

# a token with which a breaker can begin -> how it goes on, () where the token contains all of it
Breakers = Mapping[int, Sequence[tuple[int, ...]]]

NO_BREAKERS: Breakers = MappingProxyType({})

_known: weakref.WeakKeyDictionary[Tokenizer, dict[tuple[str, ...], Breakers]] = weakref.WeakKeyDictionary()


def breakers_of(tokenizer: Tokenizer, texts: tuple[str, ...]) -> Breakers:
    """All ways in which tokens can spell one of `texts`. This reads the whole vocabulary, so it is remembered."""
    known = _known.setdefault(tokenizer, {})
    if texts not in known:
        if len(known) == MAX_REMEMBERED:
            del known[next(iter(known))]
        known[texts] = _spellings(tokenizer, [text.encode()[:MAX_BREAKER_BYTES] for text in texts])
    return known[texts]


def _spellings(tokenizer: Tokenizer, texts: list[bytes]) -> Breakers:
    found: dict[int, list[tuple[int, ...]]] = {}
    pieces = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
    for text in texts:
        for token in [token for token, piece in enumerate(pieces) if text[:1] in piece]:
            tails = found.setdefault(token, [])
            for tail in _tails(tokenizer, text, pieces[token]):
                if tail not in tails:
                    tails.append(tail)
    return {token: tails for token, tails in found.items() if tails}


def _tails(tokenizer: Tokenizer, text: bytes, piece: bytes) -> list[tuple[int, ...]]:
    if text in piece:
        return [()]
    return [tuple(tokenizer.encode(text[n:], add_special=False)[:MAX_TAIL_TOKENS])
            for n in range(min(len(piece), len(text) - 1), 0, -1) if piece.endswith(text[:n])]


def dry(candidates: Candidates, window: Sequence[int], *, multiplier: float, base: float, allowed_length: int,
        breakers: Breakers) -> None:
    """Take multiplier * base^(n - allowed_length) off the logit of each token that would make a repetition of n tokens
    longer, if n is at least `allowed_length`. Breakers themselves stay as they are."""
    if len(window) <= allowed_length:
        return
    longest = min(len(window), tokens_after_breaker(window, breakers))
    if longest < allowed_length:
        return
    max_exponent = int(LOG_FLOAT32_MAX / math.log(base)) if base > 1.000001 else longest
    lengths = repetitions(np.asarray(window), min(longest, allowed_length + max_exponent))
    penalised = {token: length for token, length in lengths.items()
                 if length >= allowed_length and () not in breakers.get(token, ())}
    candidates.unsort()
    if not penalised:
        return
    positions, places = candidates.find(np.array(list(penalised)))
    exponents = np.array(list(penalised.values()))[places] - allowed_length
    logits = candidates.logits.copy()
    logits[positions] -= (multiplier * base**exponents.astype(np.float64)).astype(np.float32)
    candidates.logits = logits


def tokens_after_breaker(window: Sequence[int], breakers: Breakers) -> int:
    """How many tokens follow the last breaker in `window`; all of them if there is none."""
    for n_after, token in enumerate(reversed(window)):
        start = len(window) - n_after                   # of what follows `token`
        matching = [len(tail) for tail in breakers.get(token, ())
                    if len(tail) <= n_after and tuple(window[start : start + len(tail)]) == tail]
        if matching:
            return n_after - max(matching)
    return len(window)


def repetitions(window: Ids, longest: int) -> dict[int, int]:
    """For the tokens of `window` but its first: how long the copy of its end before them is, at most `longest`.

    Of several copies before the same token the longest counts.
    """
    n = len(window)
    ends = np.arange(n - 1)                             # last tokens of copies of `length` tokens, the next longer ones
    lengths = dict.fromkeys(window[1:].tolist(), 0)
    for length in range(1, longest + 1):
        ends = ends[ends >= length - 1]
        ends = ends[window[ends - length + 1] == window[n - length]]
        if not len(ends):
            break
        lengths.update(dict.fromkeys(window[ends + 1].tolist(), length))
    return lengths
