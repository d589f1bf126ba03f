"""Settings of the engine and parameters of a request."""

from __future__ import annotations

import itertools
import math
import operator
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal

from ggpy.errors import ConfigError, RequestError, shown

MAX_SEED = 2**32 - 1
RANDOM_SEED = MAX_SEED      # llama-server's way to say "another one each time"; so is a negative seed
MAX_TEXTS = 128             # stop strings, or breakers of DRY, of a request
MAX_COUNT = 2**31 - 1       # what llama.cpp's counts hold, too
MAX_THREADS = 512           # llama.cpp's limit; starting more takes longer than any answer
DEFAULT_STEP_MS = 75.0

Pooling = Literal["none", "mean", "cls", "last", "rank"]        # how a text's hidden states become its vector


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """Limits of the engine; never changed after it has started."""

    n_ctx: int                      # tokens that one request may hold, prompt and answer together
    max_batch_tokens: int = 512     # tokens of one forward pass, all requests together
    max_running: int = 64           # requests that hold pages at the same time
    max_queue: int = 1024           # requests that may wait
    # prompts are read in steps of about so long while others generate, a third longer where several wait; 0: any
    step_ms: float = DEFAULT_STEP_MS
    cache_audit: int = 0            # of so many cache hits one is computed again and compared; 0: none
    synthetic_rates: tuple[float, ...] = ()     # SpeculationConfig says what they are
    shows_special: bool = False     # the text of answers has control tokens, too
    n_ctx_train: int | None = None      # tokens that the model was trained for, if that is known; only messages tell it
    pooling: Pooling | None = None      # that the model was made for; None: it does not say

    @property
    def way_to_more(self) -> str:
        """The end of a message about a prompt that does not fit: how it would, or why no context should be larger."""
        if self.n_ctx_train is not None and self.n_ctx_train <= self.n_ctx:
            return f": the model was trained for {self.n_ctx_train:,}"
        limit = "" if self.n_ctx_train is None else f", up to {self.n_ctx_train:,},"
        return f", or load the model with a larger context{limit} by -c on the command line or n_ctx in Python"

    def __post_init__(self) -> None:
        for name, least in (("n_ctx", 2), ("max_batch_tokens", 1), ("max_running", 1), ("max_queue", 1),
                            ("cache_audit", 0)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}={getattr(self, name)}: expected {least} or more")
        if not isinstance(self.step_ms, int | float) or not 0 <= self.step_ms < math.inf:      # nan too
            raise ConfigError(f"step_ms={self.step_ms!r:.80}: expected milliseconds, or 0 for steps of any length")


SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
SAMPLER_LETTERS = {"e": "penalties", "d": "dry", "s": "top_n_sigma", "k": "top_k", "y": "typ_p", "p": "top_p",
                   "m": "min_p", "x": "xtc", "t": "temperature", "a": "adaptive_p"}
SAMPLER_ALIASES = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p"}

LIMITS: dict[str, tuple[float, float]] = {      # lowest and highest value; infinity itself is never one
    "min_keep": (0, MAX_COUNT), "temperature": (0, math.inf), "dynatemp_range": (0, math.inf),
    "dynatemp_exponent": (0, math.inf), "top_k": (0, MAX_COUNT), "top_p": (0, 1), "min_p": (0, 1),
    "typical_p": (0, 1), "top_n_sigma": (-math.inf, math.inf), "xtc_probability": (0, 1), "xtc_threshold": (0, 1),
    "repeat_penalty": (1e-6, math.inf), "presence_penalty": (-math.inf, math.inf),
    "frequency_penalty": (-math.inf, math.inf), "repeat_last_n": (0, MAX_COUNT),
    "dry_multiplier": (0, math.inf), "dry_base": (0, math.inf), "dry_allowed_length": (0, MAX_COUNT),
    "dry_penalty_last_n": (0, MAX_COUNT), "mirostat": (0, 2), "mirostat_tau": (0, math.inf),
    "mirostat_eta": (0, math.inf), "adaptive_target": (-math.inf, 1), "adaptive_decay": (0, 0.99),
    "seed": (0, MAX_SEED), "max_tokens": (1, MAX_COUNT),
}
WHOLE = ("min_keep", "top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "mirostat", "seed",
         "max_tokens")
OPTIONAL = ("repeat_last_n", "dry_penalty_last_n", "seed", "max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How a request's tokens are chosen and where it ends. Names and defaults are those of llama.cpp's server.

    `samplers` takes the other spellings that llama.cpp knows ("top-k", "temp", ...), `logit_bias` a mapping too.
    Raises ConfigError if a value is out of range or of the wrong type.
    """

    samplers: tuple[str, ...] = SAMPLERS        # to apply, in this order; the others are off
    min_keep: int = 0                   # tokens that top_p, min_p, typ_p and xtc leave at least
    temperature: float = 0.8            # 0: always the most probable token
    dynatemp_range: float = 0.0         # how far the temperature moves up and down with the entropy; 0: fixed
    dynatemp_exponent: float = 1.0      # of the entropy, from 0 to 1, as a position in that range
    top_k: int = 40                     # only the k most probable tokens; 0: all
    top_p: float = 0.95                 # only the most probable tokens that add up to p; 1: all
    min_p: float = 0.05                 # only tokens at least p times as probable as the best; 0: all
    typical_p: float = 1.0              # only tokens of nearly average information that add up to p; 1: all
    top_n_sigma: float = -1.0           # only logits within n standard deviations of the best; 0 or less: all
    xtc_probability: float = 0.0        # chance that all tokens as probable as the threshold go, but the last; 0: off
    xtc_threshold: float = 0.1          # above 0.5: off
    repeat_penalty: float = 1.0         # divides the logits of tokens that have occurred; 1: off
    presence_penalty: float = 0.0       # taken off the logits of tokens that have occurred
    frequency_penalty: float = 0.0      # the same, for each time that they have occurred
    repeat_last_n: int | None = 64      # how many of the last tokens the penalties look at; None: all
    dry_multiplier: float = 0.0         # of the penalty on going on with a repetition (DRY); 0: off
    dry_base: float = 1.75              # the penalty grows by this for each token of the repetition; below 1: off
    dry_allowed_length: int = 2         # shorter repetitions are free
    dry_penalty_last_n: int | None = 64     # how many of the last tokens DRY looks at; None: all
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")      # a repetition does not reach across these
    mirostat: int = 0                   # 1 or 2: Mirostat of that version, in place of `samplers`
    mirostat_tau: float = 5.0           # the surprise in bits that it aims at
    mirostat_eta: float = 0.1           # how fast it learns
    adaptive_target: float = -1.0       # the probability that sampler adaptive_p prefers; negative: none
    adaptive_decay: float = 0.9         # how long it remembers: 1 / (1 - decay) tokens
    logit_bias: tuple[tuple[int, float], ...] = ()      # (token, what is added to its logit); -inf: never chosen
    seed: int | None = None             # of the random numbers, 0 to 2**32 - 1; None: another one each time
    max_tokens: int | None = None       # tokens to generate; None: until the model ends or the context is full
    stop: tuple[str, ...] = ()          # texts that end the answer and are not part of it
    ignore_eos: bool = False            # never choose a token that ends the answer

    def __post_init__(self) -> None:
        for name in ("samplers", "dry_sequence_breakers", "stop"):
            object.__setattr__(self, name, _texts(name, getattr(self, name)))
        object.__setattr__(self, "samplers", tuple(map(sampler_name, self.samplers)))
        object.__setattr__(self, "logit_bias", _biases(self.logit_bias))
        for name, (low, high) in LIMITS.items():
            _check(name, getattr(self, name), low, high)
        if not isinstance(self.ignore_eos, bool):
            raise ConfigError(f"ignore_eos={shown(self.ignore_eos)}: expected True or False")

    def with_seed(self) -> SamplingParams:
        """The same parameters, with a random seed if they have none."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(32))

    def check_vocabulary(self, n_vocab: int) -> None:
        """Raises RequestError for a logit bias on a token that a model of `n_vocab` tokens does not have."""
        for token, _ in self.logit_bias:
            if token >= n_vocab:
                raise RequestError(f"logit_bias: token {token} is not in the vocabulary; expected 0 to {n_vocab - 1}")


def sampler_name(name: str) -> str:
    """The sampler called `name`, in any spelling: "top_k", "top-k", "topk", ... Raises ConfigError if it is unknown."""
    plain = name.strip().lower().replace("-", "_")
    for known in SAMPLER_LETTERS.values():
        if plain in (known, known.replace("_", "")):
            return known
    if plain not in SAMPLER_ALIASES:
        raise ConfigError(f"samplers: {name!r} is unknown; expected some of {', '.join(SAMPLER_LETTERS.values())}")
    return SAMPLER_ALIASES[plain]


def samplers_of_letters(letters: str) -> tuple[str, ...]:
    """The samplers of a string such as "edskypmxt", a letter for each. Raises ConfigError if one is unknown."""
    for letter in letters:
        if letter not in SAMPLER_LETTERS:
            known = ", ".join(f"{key} ({name})" for key, name in SAMPLER_LETTERS.items())
            raise ConfigError(f"samplers {letters!r}: {letter!r} is unknown; expected letters of {known}")
    return tuple(SAMPLER_LETTERS[letter] for letter in letters)


def _texts(name: str, value: Iterable[str]) -> tuple[str, ...]:
    if isinstance(value, str) or not _is_listed(value):
        raise ConfigError(f"{name}={shown(value)}: expected a tuple of strings, such as ('\\n', 'User:')")
    texts = tuple(itertools.islice(value, MAX_TEXTS + 1))
    if len(texts) > MAX_TEXTS:
        raise ConfigError(f"{name}: there are more than {MAX_TEXTS}; each costs time at every token")
    if not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"{name}={shown(texts)}: expected strings that are not empty")
    if any("\ud800" <= c <= "\udfff" for text in texts for c in text):
        raise ConfigError(f"{name}={shown(texts)}: expected strings of valid Unicode, found a lone surrogate")
    return texts


def _is_listed(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, Mapping)


def _biases(value: Mapping[int, float] | Iterable[tuple[int, float]]) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, Iterable):
        raise ConfigError(f"logit_bias={shown(value)}: expected a mapping of tokens to numbers, or pairs of them")
    return tuple(map(_bias, value.items() if isinstance(value, Mapping) else value))


def _bias(pair: Any) -> tuple[int, float]:
    """`pair`, a token and what is added to its logit, as plain numbers. Raises ConfigError."""
    if not (isinstance(pair, Sequence) and len(pair) == 2 and isinstance(pair[0], Integral)):
        raise ConfigError(f"logit_bias: {shown(pair)} is not a token, a whole number, and a number")
    token, bias = int(pair[0]), _as_float(pair[1])
    if isinstance(pair[0], bool) or not 0 <= token <= MAX_COUNT or not bias < math.inf:      # nan too
        raise ConfigError(f"logit_bias of token {shown(pair[0])} is {shown(pair[1])}: expected a token from 0 to "
                          f"{MAX_COUNT} and a finite number or -inf")
    return token, bias


def _check(name: str, value: object, low: float, high: float) -> None:
    if value is None and name in OPTIONAL:
        return
    is_whole, number = name in WHOLE, _as_float(value)
    if (is_whole and not isinstance(value, int | Integral)) or not (low <= number <= high and math.isfinite(number)):
        what = "a whole number" if is_whole else "a number"
        limits = f"from {low:g} to {high:.10g}" if math.isfinite(high) else f"of at least {low:g}"
        raise ConfigError(f"{name}={shown(value)}: expected {what} {limits}")


def _as_float(value: Any) -> float:
    """A number of any type, NumPy's too, as a float, infinite if it is too large for one; nan for anything else."""
    if type(value) is float:
        return value
    if not isinstance(value, int | Real) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if operator.gt(value, 0) else -math.inf
