"""The temperature: fixed, or following the entropy."""

from __future__ import annotations

import math

import numpy as np

from ggpy.engine.sampling.candidates import Candidates


def temperature(candidates: Candidates, value: float) -> None:
    """Divide the logits by `value`; 0 leaves the most probable token alone, of equal ones the first."""
    if value <= 0:
        candidates.keep_best()
    elif value != 1:
        candidates.logits = candidates.logits / np.float32(value)


def dynamic_temperature(candidates: Candidates, value: float, spread: float, exponent: float) -> None:
    """A temperature from value - spread to value + spread that rises with the entropy of the candidates.

    The entropy counts as a part, from 0 to 1, of what it would be if all candidates were as probable; that part to the
    power of `exponent` is the place in the range.
    """
    if len(candidates) <= 1:
        return
    low, high = max(0.0, value - spread), value + spread
    probabilities = candidates.probabilities().astype(np.float64)
    probabilities = probabilities[probabilities > 0]
    entropy = float(-np.sum(probabilities * np.log(probabilities)))
    part = max(0.0, entropy / math.log(len(candidates)))
    candidates.sort()
    temperature(candidates, low + (high - low) * part**exponent)
