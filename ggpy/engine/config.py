"""What a user chooses: for the engine before it starts, and for each request."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ggpy.errors import ConfigError

MAX_SEED = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Limits of the engine; never changed after it has started."""

    n_ctx: int                      # tokens that one request may hold, prompt and answer together
    max_batch_tokens: int = 512     # tokens of one forward pass, all requests together
    max_running: int = 64           # requests that hold pages at the same time

    def __post_init__(self) -> None:
        for name, least in (("n_ctx", 2), ("max_batch_tokens", 1), ("max_running", 1)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: expected {least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a request's tokens are chosen and where it ends. Names and defaults are llama.cpp's.

    Raises ConfigError for a value that cannot work.
    """

    temperature: float = 0.8            # 0: always the most probable token
    top_k: int = 40                     # only the k most probable tokens; 0: all
    top_p: float = 0.95                 # only the most probable tokens that add up to p; 1: all
    min_p: float = 0.05                 # only tokens at least p times as probable as the best; 0: all
    repeat_penalty: float = 1.0         # divides the logits of tokens that have occurred; 1: off
    presence_penalty: float = 0.0       # taken off the logits of tokens that have occurred
    frequency_penalty: float = 0.0      # the same, for each time that they have occurred
    repeat_last_n: int | None = 64      # how many of the last tokens the penalties look at; None: all
    seed: int | None = None             # of the random numbers, 0 to 2**32 - 1; None: another one each time
    max_tokens: int | None = None       # tokens to generate; None: until the model ends or the context is full
    stop: tuple[str, ...] = ()          # texts that end the answer and are not part of it
    ignore_eos: bool = False            # never choose a token that ends the answer

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            raise ConfigError(f"stop={self.stop!r}: expected a tuple of strings, such as ({self.stop!r},)")
        object.__setattr__(self, "stop", tuple(self.stop))
        if not all(isinstance(text, str) and text for text in self.stop):
            raise ConfigError(f"stop={self.stop!r}: expected strings that are not empty")
        _check("temperature", self.temperature, 0)
        _check("top_k", self.top_k, 0)
        _check("top_p", self.top_p, 0, 1)
        _check("min_p", self.min_p, 0, 1)
        _check("repeat_penalty", self.repeat_penalty, 1e-6)
        _check("presence_penalty", self.presence_penalty, -math.inf)
        _check("frequency_penalty", self.frequency_penalty, -math.inf)
        _check("repeat_last_n", self.repeat_last_n, 0)
        _check("seed", self.seed, 0, MAX_SEED)
        _check("max_tokens", self.max_tokens, 1)

    @property
    def has_penalties(self) -> bool:
        """Whether tokens that have occurred matter to the choice of the next."""
        return (self.repeat_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)


def _check(name: str, value: float | None, low: float, high: float = math.inf) -> None:
    if value is not None and not (low <= value <= high and math.isfinite(value)):     # nan too
        limits = f"a number from {low:g} to {high:g}" if math.isfinite(high) else f"a number of at least {low:g}"
        raise ConfigError(f"{name}={value}: expected {limits}")
