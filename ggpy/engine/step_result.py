"""What one step brings to one request: the tokens chosen at its output rows."""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.engine.generation import Generation
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability, of_logits
from ggpy.engine.request import Event, FinishReason
from ggpy.engine.sampling.memory import NO_TOKEN, Choice
from ggpy.engine.scheduler import Chunk
from ggpy.errors import GgpyError


class StepResult:
    """The output rows of a request's chunk, in order: a token is chosen at each while those before were the drafts.

    So each token is drawn from the logits that follow the tokens before it, with its own random numbers, as if there
    were no drafts: these only save steps.
    """

    __slots__ = ("_drafts", "_first_row", "_logits", "_num_lucky", "_texts", "error", "generation", "masks",
                 "num_accepted", "probabilities", "reason", "tokens")

    def __init__(self, generation: Generation, chunk: Chunk, logits: Float32, first_row: int) -> None:
        """Rows of `logits` (n, n_vocab) from `first_row` on are this request's."""
        self.generation = generation
        self.masks: NDArray[np.int32] | None = None     # (1 + drafts, n_words): what may come at each row
        self.tokens: list[int] = []                     # chosen
        self.reason: FinishReason | None = None         # why the answer ends here
        self.error: GgpyError | None = None
        self.probabilities: list[TokenProbability] = []     # of the tokens, if they were asked for
        self.num_accepted = 0                           # drafts that were right
        self._drafts = chunk.drafts
        self._num_lucky = generation.num_lucky(chunk.drafts)
        self._logits, self._first_row = logits, first_row
        self._texts: list[str] = []

    @property
    def num_drafted(self) -> int:
        return len(self._drafts)

    def choice(self) -> Choice:
        """What the next token is chosen by and after."""
        i, generation = len(self.tokens), self.generation
        mask = None if self.masks is None else self.masks[i]
        return self._first_row + i, generation.sampler, generation.request.tokens, mask

    def take(self, token: int) -> bool:
        """Take what was chosen, a token or NO_TOKEN; whether another one can be chosen at the next row."""
        generation, request, i = self.generation, self.generation.request, len(self.tokens)
        try:
            if token == NO_TOKEN:
                raise generation.sampler.failure(len(request.tokens))
            is_right = i < len(self._drafts) and self._drafts[i] == token
            if self._num_lucky is not None:
                is_right = i < self._num_lucky
                token = self._drafts[i] if is_right else token
            request.num_computed = len(request.tokens)
            text, self.reason = generation.push(token)
        except GgpyError as error:
            self.fail(error)
            return False
        self.tokens.append(token)
        self.num_accepted += is_right
        self._texts.append(text)
        if request.probabilities is not None:
            self.probabilities.append(self._probability(request.probabilities, token))
        return self.reason is None and is_right

    def _probability(self, spec: ProbabilitySpec, token: int) -> TokenProbability:
        """Of the token chosen last, which is not in `probabilities` yet."""
        if spec.after_sampling:
            return self.generation.sampler.probability(token, spec.n_top)
        return of_logits(self._logits[self._first_row + len(self.probabilities)], token, spec.n_top)

    def fail(self, error: GgpyError) -> None:
        """End the answer here; one request's trouble is not the others'."""
        self.error = self.generation.request.error = error
        self.reason = "error"
        self._texts.append(self.generation.text.finish())

    def event(self) -> Event:
        request = self.generation.request
        return Event(request.id, tuple(self.tokens), "".join(self._texts), self.reason, self.error,
                     request.num_cached or 0, None if self.reason is None else request.miss, time.perf_counter(),
                     tuple(self.probabilities), num_drafted=request.num_drafted, num_accepted=request.num_accepted,
                     admitted_s=request.admitted_s)
