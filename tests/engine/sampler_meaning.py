"""What each sampler means, in plain NumPy: everything is sorted, nothing is lazy. The oracle of the engine's chain."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

INF = np.float32(np.inf)


@dataclass
class Candidates:
    """Candidates in their order."""

    ids: NDArray[np.intp]
    logits: NDArray[np.float32]
    is_sorted: bool = False

    def take(self, order: Any) -> None:
        self.ids, self.logits = self.ids[order], self.logits[order]

    def sort(self) -> None:
        if not self.is_sorted:
            self.take(np.argsort(-self.logits, kind="stable"))
            self.is_sorted = True

    def weights(self) -> NDArray[np.float32]:
        return np.asarray(np.exp(self.logits - self.logits.max()))

    def probabilities(self) -> NDArray[np.float32]:
        return self.weights() / np.float32(self.weights().sum(dtype=np.float64))


def mask(candidates: Candidates, words: NDArray[np.int32]) -> None:
    allowed = np.unpackbits(words.view(np.uint8), bitorder="little")[candidates.ids].astype(bool)
    candidates.logits = np.where(allowed, candidates.logits, -INF)


def top_k(candidates: Candidates, k: int) -> None:
    if k:
        candidates.sort()
        candidates.take(slice(k))


def top_p(candidates: Candidates, p: float, min_keep: int) -> None:
    if p < 1:
        candidates.sort()
        running = np.cumsum(candidates.weights().astype(np.float64))
        candidates.take(slice(max(1 + int(np.count_nonzero(running < p * running[-1])), min_keep)))


def min_p(candidates: Candidates, p: float, min_keep: int) -> None:
    if p > 0:
        kept = candidates.logits >= candidates.logits.max() + np.float32(np.log(p))
        if np.count_nonzero(kept) >= min_keep:
            candidates.take(kept)
        else:
            candidates.sort()
            candidates.take(slice(min_keep))


def typ_p(candidates: Candidates, p: float, min_keep: int) -> None:
    """Information is a constant less the logit, so the distance to its average is that of the logit to its average."""
    if p < 1:
        weights = candidates.weights().astype(np.float64)
        below = candidates.logits - candidates.logits.max()
        average = np.sum(weights * np.maximum(below, -1000.0)) / weights.sum()
        order = np.argsort(abs(below - np.float32(average)), kind="stable")
        running = np.cumsum(weights[order])
        candidates.take(order[: max(1 + int(np.count_nonzero(running <= p * running[-1])), min_keep)])
        candidates.is_sorted = False


def top_n_sigma(candidates: Candidates, n: float) -> None:
    if n > 0 and len(candidates.ids) > 1:
        finite = candidates.logits[candidates.logits > -INF].astype(np.float64)
        bound = np.float32(finite.max() - n * np.sqrt(np.mean((finite - finite.mean()) ** 2)))
        candidates.logits = np.where(candidates.logits < bound, -INF, candidates.logits)


def xtc(candidates: Candidates, threshold: float, min_keep: int) -> None:
    if len(candidates.ids) > 1:
        candidates.sort()
        n = max(0, int(np.count_nonzero(candidates.probabilities() >= np.float32(threshold))) - 1)
        if len(candidates.ids) - n >= min_keep:
            candidates.take(slice(n, None))


def temperature(candidates: Candidates, value: float) -> None:
    if value == 0:
        candidates.take([int(np.argmax(candidates.logits))])
    else:
        candidates.logits = candidates.logits / np.float32(value)


def dynamic_temperature(candidates: Candidates, value: float, spread: float, exponent: float) -> None:
    if len(candidates.ids) > 1:
        candidates.sort()
        probabilities = candidates.probabilities().astype(np.float64)
        probabilities = probabilities[probabilities > 0]
        part = -np.sum(probabilities * np.log(probabilities)) / np.log(len(candidates.ids))
        low = max(0.0, value - spread)
        temperature(candidates, low + (value + spread - low) * max(0.0, part) ** exponent)


def penalties(candidates: Candidates, window: list[int], repeat: float, frequency: float, presence: float) -> None:
    logits = candidates.logits.copy()
    for i, token in enumerate(candidates.ids):
        if count := window.count(int(token)):
            x = logits[i] / np.float32(repeat) if logits[i] > 0 else logits[i] * np.float32(repeat)
            logits[i] = x - (np.float32(count) * np.float32(frequency) + np.float32(presence))
    candidates.logits, candidates.is_sorted = logits, False


def copies(window: list[int]) -> dict[int, int]:
    """For each token that stands behind something: how long the text before it and the window's end are the same."""
    longest: dict[int, int] = {}
    for at in range(1, len(window)):
        n = 0
        while n < at and window[at - 1 - n] == window[-1 - n]:
            n += 1
        longest[window[at]] = max(n, longest.get(window[at], 0))
    return longest


def dry(candidates: Candidates, window: list[int], multiplier: float, base: float, allowed_length: int,
        limit: int) -> None:
    """`limit` is how many tokens follow the last breaker."""
    if len(window) <= allowed_length or limit < allowed_length:
        return
    logits = candidates.logits.copy()
    for token, copied in copies(window).items():
        if min(copied, limit) >= allowed_length:
            penalty = multiplier * base ** (min(copied, limit) - allowed_length)
            logits[candidates.ids == token] -= np.float32(penalty)
    candidates.logits, candidates.is_sorted = logits, False


class Random:
    """Numbers of the C++ standard's mt19937, as llama.cpp draws them."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed)

    def double(self) -> float:
        """(a + b * 2**32) / 2**64 of the next two outputs, below 1."""
        return min(int.from_bytes(self._state.bytes(8), "little") / 2**64, math.nextafter(1, 0))

    def float(self) -> np.float32:
        """a / 2**32 of the next output, below 1."""
        value = np.float32(int.from_bytes(self._state.bytes(4), "little")) / np.float32(2**32)
        return min(value, np.nextafter(np.float32(1), np.float32(0)))


def draw(candidates: Candidates, number: float) -> int:
    running = np.cumsum(candidates.weights().astype(np.float64))
    return int(candidates.ids[np.argmax(running >= running[-1] * number)])
