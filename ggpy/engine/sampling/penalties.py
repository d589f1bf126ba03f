"""Samplers that change the logits of single tokens, before others choose among them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ggpy.engine.sampling.candidates import Candidates, Float32, Ids


def last(tokens: Sequence[int], n: int | None) -> Sequence[int]:
    """The last `n` of `tokens`; None: all."""
    return tokens if n is None else tokens[max(0, len(tokens) - n):]


def bias(candidates: Candidates, tokens: Ids, biases: Float32) -> None:
    """Add `biases` to the logits of `tokens` (without repetitions)."""
    positions, places = candidates.find(tokens)
    candidates.logits = candidates.logits.copy()
    candidates.logits[positions] += biases[places]


def penalties(candidates: Candidates, window: Sequence[int], *, repeat: float, frequency: float,
              presence: float) -> None:
    """Make tokens of `window` less likely: a logit above 0 is divided by `repeat`, another one multiplied by it, then
    `presence` and, for each time that the token occurs, `frequency` are taken off."""
    candidates.unsort()
    seen, counts = np.unique(np.asarray(window, np.intp), return_counts=True)
    positions, places = candidates.find(seen)
    logits = candidates.logits.copy()
    x = logits[positions]
    x = np.where(x > 0, x / np.float32(repeat), x * np.float32(repeat))
    taken_off = counts[places].astype(np.float32) * np.float32(frequency) + np.float32(presence)
    logits[positions] = x - taken_off
    candidates.logits = logits
