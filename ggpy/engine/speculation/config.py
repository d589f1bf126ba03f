"""What may guess tokens, and how many."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, get_args

from ggpy.errors import ConfigError, shown

ProposerName = Literal["ngram", "past", "draft"]

LIMITS: dict[str, tuple[int, int]] = {      # lowest and highest value
    "n_max": (1, 256), "n_min": (0, 256), "ngram_min": (1, 64), "ngram_max": (1, 64), "past_tokens": (0, 2**24),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationConfig:
    """How tokens are guessed. Raises ConfigError if a value is out of range or of the wrong type.

    `n_max` is a limit: how many tokens are guessed follows from how many turn out right and what their rows cost.
    """

    proposers: tuple[ProposerName, ...] = ("ngram", "past", "draft")    # "draft" if there is a draft model; (): none
    # tokens guessed at once. With the row before them they make 16: on Zen 4 each of so many takes a fifth of the time
    # of a row alone, and each of 32 hardly less
    n_max: int = 15
    n_min: int = 0                  # fewer than these are not worth a try
    p_min: float = 0.0              # guessing stops before a token that its proposer finds less probable
    ngram_min: int = 1              # tokens that must have occurred before for what followed them to be proposed
    ngram_max: int = 64             # longer agreement makes no difference
    past_tokens: int = 2**16        # tokens of past answers that are kept
    # for measurements alone: at each step the draft model guesses, and its guess at each position is taken as often as
    # this says, right or not; (): never, and answers are what they would be without guesses
    synthetic_rates: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        names = get_args(ProposerName)
        if not isinstance(self.proposers, tuple) or not set(self.proposers) <= set(names):
            raise ConfigError(f"proposers={shown(self.proposers)}: expected a tuple of some of {', '.join(names)}")
        for name, (low, high) in LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, Integral) or not low <= int(value) <= high:
                raise ConfigError(f"{name}={shown(value)}: expected a whole number from {low} to {high}")
        if not isinstance(self.p_min, Real) or not 0 <= self.p_min <= 1:        # nan too
            raise ConfigError(f"p_min={shown(self.p_min)}: expected a probability, 0 to 1")
        if any(not 0 <= rate <= 1 for rate in self.synthetic_rates):
            raise ConfigError(f"synthetic_rates={shown(self.synthetic_rates)}: expected probabilities, 0 to 1")
        for least, most in (("n_min", "n_max"), ("ngram_min", "ngram_max")):
            if getattr(self, least) > getattr(self, most):
                raise ConfigError(f"{least}={getattr(self, least)}: expected at most {most}, "
                                  f"which is {getattr(self, most)}")
