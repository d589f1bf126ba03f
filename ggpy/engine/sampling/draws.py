"""Random numbers, and the samplers that end a chain by choosing one of the candidates."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from ggpy.engine.sampling.candidates import Candidates, Float32

BLOCK = 512                 # weights that are added up at once in a long list
MIROSTAT_TOKENS = 100       # most probable tokens from which Mirostat 1 estimates the distribution


class Random:
    """Numbers of the C++ standard's mt19937, as llama.cpp draws them: each sampler that draws has a Random."""

    def __init__(self, seed: int) -> None:
        self._state = np.random.RandomState(seed)       # mt19937 seeded as the C++ standard says

    def double(self) -> float:
        """In [0, 1), as uniform_real_distribution<double>: (a + b * 2**32) / 2**64 of the next two outputs."""
        return min(int.from_bytes(self._state.bytes(8), "little") / 2**64, math.nextafter(1, 0))

    def float(self) -> np.float32:
        """In [0, 1), as uniform_real_distribution<float>: a / 2**32 of the next output."""
        value = np.float32(int.from_bytes(self._state.bytes(4), "little")) / np.float32(2**32)
        return min(value, np.nextafter(np.float32(1), np.float32(0)))


def position_of(candidates: Candidates, number: float) -> int:
    """Where the first candidate stands whose running sum of probabilities, in order, reaches `number` of the total."""
    weights = candidates.weights()
    if candidates.is_settled:
        return first_reaching(weights, number)
    target = max(weights.sum(dtype=np.float64) * number, math.ulp(0))
    reach = candidates.reach(weights, target)
    return int(reach.head[reach.n_in_head(target) - 1])


def first_reaching(weights: Float32, number: float) -> int:
    """Index of the first running sum of `weights` that reaches `number` of the total; never one that adds nothing.

    A long list is added up in blocks and looked at closely in the right one alone.
    """
    whole, rest = np.split(weights, [len(weights) // BLOCK * BLOCK])
    after = np.cumsum([*whole.reshape(-1, BLOCK).sum(axis=1, dtype=np.float64), rest.sum(dtype=np.float64)])
    target = max(after[-1] * number, math.ulp(0))
    block = int(np.searchsorted(after, target))
    running = (after[block - 1] if block else 0) + np.cumsum(weights[block * BLOCK :][:BLOCK], dtype=np.float64)
    return block * BLOCK + int(np.searchsorted(running, min(target, running[-1])))


class Selector(Protocol):
    """Ends a chain: chooses a token and advances its own state."""

    def choose(self, candidates: Candidates) -> int: ...


class Draw:
    """Chooses by probability; takes a number even if there is one candidate."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def choose(self, candidates: Candidates) -> int:
        return candidates.id_at(position_of(candidates, self._random.double()))


def position_of_discrete(candidates: Candidates, random: Random) -> int:
    """The same for samplers that draw as discrete_distribution does: no number for a single candidate."""
    return position_of(candidates, random.double()) if len(candidates) > 1 else 0


class Mirostat:
    """Keeps the surprise of the chosen tokens near `tau` bits (Basu et al., Mirostat, 2021).

    `mu`, the surprise that is allowed, moves by `eta` for each bit that a token is off.
    """

    def __init__(self, random: Random, tau: float, eta: float) -> None:
        self._random = random
        self.tau, self.eta = tau, eta
        self.mu = 2 * tau

    def _draw(self, candidates: Candidates) -> int:
        position = position_of_discrete(candidates, self._random)
        surprise = -math.log2(candidates.probabilities()[position])
        self.mu -= self.eta * (surprise - self.tau)
        return candidates.id_at(position)


class Mirostat1(Mirostat):
    """Version 1: of the k most probable, k from an estimate of how steeply probabilities fall with rank."""

    def __init__(self, random: Random, tau: float, eta: float, n_vocab: int) -> None:
        super().__init__(random, tau, eta)
        self.n_vocab = n_vocab

    def choose(self, candidates: Candidates) -> int:
        candidates.sort()
        if len(candidates) > 1:
            candidates.keep_first(self._k(candidates))
        return self._draw(candidates)

    def _k(self, candidates: Candidates) -> int:
        head = candidates.first(MIROSTAT_TOKENS)
        logits = candidates.logits[head].astype(np.float64)
        logits = logits[logits > -np.inf]               # a token that cannot come says nothing of the slope
        if len(logits) < 2:
            return 1
        rank = np.arange(1, len(logits))
        t = np.log((rank + 1) / rank)
        s = float(np.sum(t * -np.diff(logits)) / np.sum(t * t))
        return min(len(candidates), mirostat_k(s, self.mu, self.n_vocab))


def mirostat_k(s: float, mu: float, n_vocab: int) -> int:
    """((e * 2^mu) / (1 - n_vocab^-e))^(1/s) with e = s - 1, whole, 1 at least; `s` of 0 or more is the slope."""
    e = s - 1
    # at e = 0 both parts are 0 and their quotient is 1 / log(n_vocab)
    log_quotient = -math.log(math.log(n_vocab)) if abs(e) < 1e-9 else math.log(e / -math.expm1(-e * math.log(n_vocab)))
    log_power = log_quotient + mu * math.log(2)
    log_k = log_power / s if s > 0 else math.copysign(math.inf, log_power)
    return max(1, int(math.exp(min(log_k, 64))))


class Mirostat2(Mirostat):
    """Version 2: of the tokens whose surprise is at most mu."""

    def choose(self, candidates: Candidates) -> int:
        candidates.sort()
        with np.errstate(divide="ignore"):
            surprise = -np.log2(candidates.probabilities())
        positions = np.flatnonzero(surprise <= np.float32(self.mu))
        if len(positions):
            candidates.filter(positions)
        else:
            candidates.keep_first(1)
        return self._draw(candidates)


WIDTH, PEAK, SHARPNESS = 0.3, 5.0, 10.0     # of AdaptiveP's curve


class AdaptiveP:
    """Prefers tokens with a probability near a target, so that those chosen average to it over time.

    The new logit of a token of probability p is PEAK - SHARPNESS * d^2 / (1 + d), d = |p - target| / WIDTH: near the
    target a parabola, far from it a line. The target of a step is off to the other side by as much as the decaying
    average of the chosen tokens' own probabilities is off.
    """

    def __init__(self, random: Random, target: float, decay: float) -> None:
        self._random = random
        self.target, self.decay = target, decay
        self.weighted_sum, self.total_weight = target / (1 - decay), 1 / (1 - decay)

    def choose(self, candidates: Candidates) -> int:
        if self.target < 0:
            return candidates.id_at(position_of_discrete(candidates, self._random))
        own = candidates.probabilities()
        candidates.logits = self._transformed(candidates.logits, own)
        position = position_of_discrete(candidates, self._random)
        self.weighted_sum = float(own[position]) + self.decay * self.weighted_sum
        self.total_weight = 1 + self.decay * self.total_weight
        return candidates.id_at(position)

    def _transformed(self, logits: Float32, probabilities: Float32) -> Float32:
        target = np.clip(2 * self.target - self.weighted_sum / self.total_weight, 0, 1)
        distance = np.abs(probabilities - np.float32(target)) / np.float32(WIDTH)
        curve = np.float32(PEAK) - np.float32(SHARPNESS) * distance * distance / (1 + distance)
        return np.where(logits == -np.inf, logits, curve)
