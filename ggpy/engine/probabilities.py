"""How probable the tokens of an answer were, and what else could have come."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ggpy.errors import ConfigError, shown

MAX_TOP = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ProbabilitySpec:
    """What is to be told with each token: its probability, and the `n_top` most probable tokens.

    By default probabilities are those of the model, over the whole vocabulary, whatever the samplers do. With
    `after_sampling` they are those that the token was drawn by, and tokens that could not be drawn are left out. Raises
    ConfigError if `n_top` is not a whole number from 0.
    """

    n_top: int = 0
    after_sampling: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.n_top, int) or isinstance(self.n_top, bool) or not 0 <= self.n_top <= MAX_TOP:
            raise ConfigError(f"n_top={shown(self.n_top)}: expected a whole number from 0 to {MAX_TOP:,}")


class TokenProbability(NamedTuple):
    """A token of an answer, the natural logarithm of its probability, and the most probable tokens with theirs."""

    token: int
    logprob: float                              # -inf: it could not come
    top: tuple[tuple[int, float], ...] = ()     # (token, logprob), most probable first, of equal ones the lowest first


def of_logits(logits: NDArray[np.float32], token: int, n_top: int) -> TokenProbability:
    """By the softmax of `logits` (n_vocab,)."""
    most = float(logits.max())
    total = most + math.log(float(np.exp(logits.astype(np.float64) - most).sum()))
    best = largest(logits, n_top)
    return TokenProbability(token, float(logits[token]) - total,
                            tuple(zip(best.tolist(), (logits[best].astype(np.float64) - total).tolist(), strict=True)))


def of_weights(ids: NDArray[np.int32], weights: NDArray[np.float32], token: int, n_top: int) -> TokenProbability:
    """By `weights`, which are probabilities but for a common factor, of the tokens `ids`; all others cannot come."""
    total = math.log(float(weights.sum(dtype=np.float64)))
    order = np.argsort(ids)
    ids, weights = ids[order], weights[order]
    with np.errstate(divide="ignore"):
        logprobs = np.log(weights.astype(np.float64)) - total
    at = int(np.searchsorted(ids, token))
    best = largest(weights, min(n_top, int(np.count_nonzero(weights))))
    return TokenProbability(token, float(logprobs[at]),
                            tuple(zip(ids[best].tolist(), logprobs[best].tolist(), strict=True)))


def largest(x: NDArray[np.float32], n: int) -> NDArray[np.intp]:
    """Where the `n` largest of `x` are, falling; of equal ones the first come first. All if there are no more."""
    if n < len(x):
        if n == 0:
            return np.empty(0, np.intp)
        bound: Any = np.partition(x, len(x) - n)[len(x) - n]
        places = np.flatnonzero(x >= bound)
    else:
        places = np.arange(len(x))
    return places[np.argsort(-x[places], kind="stable")][:n]
