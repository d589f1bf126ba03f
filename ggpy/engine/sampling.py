"""From logits to a token: llama.cpp's chain of samplers in its order, in NumPy."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.errors import GgpyError

Float32 = NDArray[np.float32]
Ids = NDArray[np.intp]

GROUP_SIZE = 64     # logits in each group of top_k_ids


class Sampler:
    """Chooses the tokens of one request: penalties, top_k, top_p, min_p, temperature, then a draw.

    The random numbers are those of the C++ standard's mt19937 and uniform_real_distribution<double>, so `seed` gives
    the draws that it gives in llama.cpp.
    """

    def __init__(self, params: SamplingParams, eog_ids: Iterable[int] = ()) -> None:
        self.params = params
        self.seed = secrets.randbits(32) if params.seed is None else params.seed
        self._random = np.random.RandomState(self.seed)         # mt19937 seeded as the C++ standard says
        self._banned = sorted(eog_ids) if params.ignore_eos else []

    def sample(self, logits: Float32, tokens: Sequence[int]) -> int:
        """The next token, given `logits` (n_vocab,) and all `tokens` before it; `logits` stay as they are.

        Raises GgpyError if there is nothing to choose from, as after a computation that went wrong.
        """
        logits = self._adjusted(logits, tokens)
        best = int(np.argmax(logits))
        if not math.isfinite(logits[best]):
            raise GgpyError(f"after {len(tokens):,} tokens the best logit is {logits[best]}, expected a finite number; "
                            "is the model file damaged?")
        if self.params.temperature == 0:
            return best
        ids = self._candidates(logits, logits[best])
        weights = np.exp((logits[ids] - logits[best]) / np.float32(self.params.temperature))
        running = np.cumsum(weights, dtype=np.float64)
        chosen = np.searchsorted(running, running[-1] * self._draw())       # the first sum that reaches it
        return int(ids[chosen])

    def _draw(self) -> float:
        """A number in [0, 1): (a + b * 2**32) / 2**64 of the next two 32-bit outputs."""
        value = int.from_bytes(self._random.bytes(8), "little") / 2**64
        return min(value, math.nextafter(1, 0))

    def _adjusted(self, logits: Float32, tokens: Sequence[int]) -> Float32:
        """The logits with penalties and bans; a copy if there are any."""
        p = self.params
        window = tokens[max(0, len(tokens) - p.repeat_last_n):] if p.repeat_last_n is not None else tokens
        has_penalties = p.has_penalties and len(window) > 0
        if not (has_penalties or self._banned):
            return logits
        logits = logits.copy()
        if has_penalties:
            seen, counts = np.unique(np.asarray(window), return_counts=True)
            x = logits[seen]
            x = np.where(x > 0, x / p.repeat_penalty, x * p.repeat_penalty)
            logits[seen] = x - counts * p.frequency_penalty - p.presence_penalty
        logits[self._banned] = -np.inf
        return logits

    def _candidates(self, logits: Float32, best: np.float32) -> Ids:
        """Tokens that may be drawn, the most probable first. top_p counts the mass that top_k has left."""
        p = self.params
        floor = best + np.float32(math.log(p.min_p)) if p.min_p > 0 else np.float32(-np.inf)
        if 0 < p.top_k < len(logits):
            ids = top_k_ids(logits, p.top_k)
            mass = np.exp(logits[ids] - best).sum(dtype=np.float64)
        else:                           # min_p may come first here: both only cut the sorted order short
            ids = descending(logits, np.flatnonzero(logits >= floor))
            mass = np.exp(logits - best).sum(dtype=np.float64)
        if p.top_p < 1:
            running = np.cumsum(np.exp(logits[ids] - best), dtype=np.float64)
            ids = ids[: np.searchsorted(running, p.top_p * mass) + 1]
        return ids[logits[ids] >= floor]


def descending(logits: Float32, ids: Ids) -> Ids:
    """`ids` (rising) by falling logit, equal ones by id."""
    return ids[np.argsort(-logits[ids], kind="stable")]


def top_k_ids(logits: Float32, k: int) -> Ids:
    """Ids of the `k` largest logits, the largest first, equal ones by id; k < len(logits).

    k groups with a maximum of at least t hold k logits of at least t, so the k-th largest maximum of many small groups
    is a bound that few logits reach; finding it costs a fraction of a partition of all logits.
    """
    n = len(logits)
    maxima = logits[: n - n % GROUP_SIZE].reshape(GROUP_SIZE, -1).max(axis=0) if n >= GROUP_SIZE * k else logits
    bound = np.partition(maxima, len(maxima) - k)[len(maxima) - k]
    return descending(logits, np.flatnonzero(logits >= bound))[:k]
