"""Logits that anyone can compute again, for tests against recorded choices."""

import numpy as np
from numpy.typing import NDArray


def logits_of(step: int, n_vocab: int, spread: float) -> NDArray[np.float32]:
    """Logits (n_vocab,) from 0 to `spread` * 8, few of them large, no two alike; a pure function in integers."""
    x = (np.arange(1, n_vocab + 1, dtype=np.uint64) * 2654435761 + np.uint64(step + 1) * 362437) % 2**32
    for _ in range(3):
        x = (x ^ (x >> np.uint64(15))) * np.uint64(2246822519) % 2**32
    uniform = (x ^ (x >> np.uint64(13))).astype(np.float64) / 2**32
    return (uniform**4 * 8 * spread).astype(np.float32)
