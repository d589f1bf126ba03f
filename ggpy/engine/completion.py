"""An answer and how long it took."""

from __future__ import annotations

from dataclasses import dataclass

from ggpy.engine.kv_cache import Miss
from ggpy.engine.probabilities import TokenProbability
from ggpy.engine.request import FinishReason


@dataclass(frozen=True, slots=True)
class Timings:
    """How long a completion took."""

    n_prompt: int               # tokens of the prompt
    n_generated: int
    prompt_s: float             # from when it first ran to the first token
    generation_s: float         # from the first token to the last
    n_cached: int = 0           # of the prompt, tokens that an earlier request had read already
    n_drafted: int = 0          # tokens that were guessed and checked
    n_accepted: int = 0         # of these, tokens that were right
    miss: Miss | None = None    # the first token of the prompt that had to be read, and why; None: it was cancelled
    first_token_s: float = 0.0  # from the request to the first token: with compiling and waiting for others

    @property
    def prompt_tokens_per_s(self) -> float:
        """Tokens of the prompt that were read, a second; 0 if there was no first token."""
        return (self.n_prompt - self.n_cached) / self.prompt_s if self.prompt_s > 0 else 0.0

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens a second; the first one belongs to the prompt, so it takes two to tell: else 0."""
        return (self.n_generated - 1) / self.generation_s if self.generation_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer."""

    text: str
    tokens: list[int]           # with the token that ended the answer, which has no text
    finish_reason: FinishReason
    timings: Timings
    seed: int | None = None     # of the random numbers: as SamplingParams.seed it draws the same again
    probabilities: tuple[TokenProbability, ...] = ()    # of the tokens, if they were asked for

    @property
    def n_prompt(self) -> int:
        """Tokens of the prompt."""
        return self.timings.n_prompt

    @property
    def n_cached(self) -> int:
        """Of these, tokens that an earlier request had read already."""
        return self.timings.n_cached

    @property
    def miss(self) -> Miss | None:
        """The first token of the prompt that had to be read, and why; None of an answer that was cancelled."""
        return self.timings.miss
