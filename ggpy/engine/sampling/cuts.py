"""Samplers that leave only some of the candidates. `min_keep` is how many at least."""

from __future__ import annotations

import math

import numpy as np

from ggpy.engine.sampling.candidates import Candidates


def top_k(candidates: Candidates, k: int) -> None:
    """The k most probable; 0: all."""
    if k > 0:
        candidates.sort()
        if k < len(candidates):
            candidates.keep_first(k)


def top_p(candidates: Candidates, p: float, min_keep: int, floor_p: float = 0) -> None:
    """The most probable that add up to p; 1: all.

    If it is known that min_p with `floor_p` comes next, what that will remove need not be put in order here.
    """
    if p >= 1:
        return
    weights = candidates.weights()
    enough = p * weights.sum(dtype=np.float64)
    candidates.sort()
    if floor_p > 0 and min_keep <= 1:
        above = candidates.logits >= _floor(candidates, floor_p)
        weights = weights[above]
        candidates.filter(np.flatnonzero(above))
    reach = candidates.reach(weights, enough)
    head = reach.head[: reach.n_in_head(enough)]
    if len(reach.before) + len(head) < min_keep:
        candidates.keep_first(min_keep)
    elif len(reach.before):
        stays = np.zeros(len(candidates), bool)
        stays[reach.before] = stays[head] = True
        candidates.filter(np.flatnonzero(stays))
    else:
        candidates.take(head)


def min_p(candidates: Candidates, p: float, min_keep: int) -> None:
    """Those at least p times as probable as the best; 0: all."""
    if p <= 0:
        return
    positions = np.flatnonzero(candidates.logits >= _floor(candidates, p))
    if len(positions) >= min_keep:
        candidates.filter(positions)
    else:
        candidates.sort()
        candidates.keep_first(min_keep)


def _floor(candidates: Candidates, p: float) -> np.float32:
    """The logit of a token p times as probable as the best."""
    return np.float32(candidates.logits.max() + np.float32(math.log(p)))


def typical(candidates: Candidates, p: float, min_keep: int) -> None:
    """Those whose information, -log of the probability, is nearest to the average and that add up to more than p.

    They stand in the order of that distance from now on (Meister et al., Locally Typical Sampling, 2022).
    """
    if p >= 1:
        return
    candidates.sort()
    candidates.settle()
    probabilities = candidates.probabilities().astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):        # of tokens that cannot come: inf, and nan
        information = -np.log(probabilities)
        entropy = np.sum((probabilities * information)[probabilities > 0])
    order = np.argsort(np.abs(information - entropy), kind="stable")
    running = np.cumsum(probabilities[order])
    n = int(np.searchsorted(running, p, side="right")) + 1
    candidates.take(order[: max(n, min_keep)])
    candidates.is_sorted = False


def top_n_sigma(candidates: Candidates, n: float) -> None:
    """Logits within n standard deviations of the best; 0 or less: all. The others become -inf and stay."""
    if n <= 0 or len(candidates) <= 1:
        return
    logits = candidates.logits
    finite = logits if logits.min() > -np.inf else logits[logits > -np.inf]
    bound = logits.max() - n * finite.std(dtype=np.float64)
    candidates.logits = np.where(logits < np.float32(bound), np.float32(-np.inf), logits)


def xtc(candidates: Candidates, threshold: float, min_keep: int) -> None:
    """Without the most probable: of those that reach `threshold`, only the last stays (exclude top choices)."""
    candidates.sort()
    probabilities = candidates.probabilities()
    n = max(0, int(np.count_nonzero(probabilities >= np.float32(threshold))) - 1)
    if n > 0 and len(candidates) - n >= min_keep:
        candidates.drop_first(n)
