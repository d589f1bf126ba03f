"""How far apart two distributions of the next token are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Ids = NDArray[np.integer[Any]]


def logsumexp(logits: Float32) -> Float64:
    """ln of the sum of exponentials along the last axis, float64; row by row to spare memory."""
    sums = np.empty(logits.shape[:-1], np.float64)
    for index in np.ndindex(sums.shape):
        row = logits[index]
        top = row.max()
        sums[index] = top + np.log(np.exp(row - top).sum(dtype=np.float64))
    return sums


def log_softmax(logits: Float32) -> Float64:
    """Natural log of each token's probability, row by row."""
    return logits - logsumexp(logits)[..., None]


def grouped(logits: Float32, ids: Ids) -> Float64:
    """Log-probabilities (len(ids) + 1,) of the tokens `ids` and, last, of all other tokens together.

    The divergence of two distributions grouped alike is at most that of the distributions, and close to it when little
    probability lies in the group.
    """
    total = logsumexp(logits)
    others = np.delete(logits, ids)
    rest = logsumexp(others) - total if others.size else -np.inf
    return np.append(logits[ids] - total, rest)


def kl_divergence(log_p: Float64, log_q: Float64) -> Float64:
    """KL(p || q) in nats of log-probabilities along the last axis; tokens that p never gives count nothing."""
    with np.errstate(invalid="ignore"):
        terms = np.exp(log_p) * (log_p - log_q)
    result: Float64 = np.where(np.isneginf(log_p), 0.0, terms).sum(axis=-1)
    return result
