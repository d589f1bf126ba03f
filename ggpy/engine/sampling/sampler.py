"""The sampler of a request."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Sequence

import numpy as np

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling.candidates import Candidates, Float32
from ggpy.engine.sampling.chain import make_selector, make_steps, uses_dry
from ggpy.engine.sampling.draws import Selector
from ggpy.engine.sampling.dry import NO_BREAKERS, Breakers, breakers_of
from ggpy.engine.sampling.penalties import bias
from ggpy.errors import GgpyError, RequestError
from ggpy.text import Tokenizer


class Sampler:
    """Chooses the tokens of one request: logit bias, then the chain of `params`, then a draw.

    Random numbers are llama.cpp's, so `seed` gives the draws that it gives there. Nothing else changes from one token
    to the next but the state of Mirostat and adaptive_p.
    """

    def __init__(self, params: SamplingParams, eog_ids: Iterable[int] = (), breakers: Breakers = NO_BREAKERS) -> None:
        self.params = params
        self.seed = secrets.randbits(32) if params.seed is None else params.seed
        biases = dict.fromkeys(eog_ids, -math.inf) if params.ignore_eos else {}
        for token, value in params.logit_bias:
            biases[token] = biases.get(token, 0) + value
        self._bias_tokens = np.array(sorted(biases), np.intp)
        self._biases = np.array([biases[token] for token in sorted(biases)], np.float32)
        self._steps = make_steps(params, breakers, self.seed)
        self._selector: Selector | None = None

    @classmethod
    def for_tokenizer(cls, params: SamplingParams, tokenizer: Tokenizer) -> Sampler:
        """The sampler of a request to a model that has this tokenizer.

        Raises RequestError for a logit bias on a token that the model does not have.
        """
        for token, _ in params.logit_bias:
            if token >= tokenizer.n_vocab:
                raise RequestError(f"logit_bias: token {token} is not in the vocabulary; expected 0 to "
                                   f"{tokenizer.n_vocab - 1}")
        breakers = breakers_of(tokenizer, params.dry_sequence_breakers) if uses_dry(params) else NO_BREAKERS
        return cls(params, tokenizer.eog_ids, breakers)

    def sample(self, logits: Float32, tokens: Sequence[int]) -> int:
        """The next token, given `logits` (n_vocab,) and all `tokens` before it; `logits` stay as they are.

        Raises GgpyError if there is nothing to choose from, as after a computation that went wrong.
        """
        candidates = Candidates(logits)
        if len(self._bias_tokens):
            bias(candidates, self._bias_tokens, self._biases)
        _check(candidates, tokens)
        for step in self._steps:
            step(candidates, tokens)
        _check(candidates, tokens)          # penalties may be as large as they like
        if self._selector is None:
            self._selector = make_selector(self.params, self.seed, len(logits))
        return self._selector.choose(candidates)


def _check(candidates: Candidates, tokens: Sequence[int]) -> None:
    best = candidates.logits.max()
    if not math.isfinite(best):
        raise GgpyError(f"after {len(tokens):,} tokens the best logit is {best}, expected a finite number; is the "
                        "model file damaged, or are all tokens banned?")
