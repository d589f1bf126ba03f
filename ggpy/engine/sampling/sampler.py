"""The sampler of a request."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.engine.probabilities import TokenProbability, of_weights
from ggpy.engine.sampling.chain import kernels_of, make_chain, methods_of, uses_dry, window_length
from ggpy.engine.sampling.dry import NO_BREAKERS, Breakers, breakers_of
from ggpy.errors import GgpyError
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.address import address_of
from ggpy.kernels.cpu.arguments import argument_block
from ggpy.kernels.cpu.sample_candidates import LANES, LEFT, MASK, METHODS, ROW
from ggpy.text import Tokenizer

N, N_VOCAB, WINDOW, N_WINDOW = (        # what may change, as places in a row
    offset // 8 for offset in (ROW.n, ROW.n_vocab, ROW.window, ROW.n_window))

Mask = NDArray[np.int32]


class Sampler:
    """The compiled samplers of one request, and what they carry from token to token: a mask for answers that are
    constrained, logit bias, the chain of `params`, then a draw.

    Random numbers are llama.cpp's, so `seed` gives the draws that it gives there. A SamplingMemory runs it.
    """

    def __init__(self, params: SamplingParams, banned: Iterable[int] = (), breakers: Breakers = NO_BREAKERS, *,
                 is_masked: bool = False, keeps_left: bool = False) -> None:
        self.params = params.with_seed()
        assert self.params.seed is not None
        biases = dict.fromkeys(banned, -math.inf)
        for token, value in params.logit_bias:
            biases[token] = biases.get(token, 0) + value
        self._chain = make_chain(params, biases, breakers, self.params.seed, is_masked=is_masked,
                                 keeps_left=keeps_left)
        self._is_masked = is_masked
        self._keeps_left = keeps_left
        self._left_ids, self._left_weights = np.empty(0, np.int32), np.empty(0, np.float32)
        self._mask: Mask | None = None
        self._n_window = window_length(params)
        self._window = np.empty(0, np.int32)
        self._n_vocab = 0                       # of the logits so far
        methods = methods_of(params, self._chain)
        addresses = object_loader.addresses(kernels_of(params, self._chain))
        self._tape = np.array(
            [(addresses[entry.kernel], entry.arguments.ctypes.data) for entry in self._chain], np.int64)
        row = dict.fromkeys(ROW._fields, 0) | {"tape": self._tape.ctypes.data, "n_entries": len(self._tape)}
        for name in METHODS.split():
            row[name] = addresses[f"sample_order.{name}"] if name in methods else 0
        self._row = argument_block(ROW, **row)

    @classmethod
    def for_tokenizer(cls, params: SamplingParams, tokenizer: Tokenizer, *, is_masked: bool = False,
                      keeps_left: bool = False) -> Sampler:
        """The sampler of a request to a model that has this tokenizer.

        With `is_masked`, its rows may have masks; with `keeps_left`, `probability` can tell what it chose among.

        Raises RequestError for a logit bias on a token that the model does not have.
        """
        params.check_vocabulary(tokenizer.n_vocab)
        breakers = breakers_of(tokenizer, params.dry_sequence_breakers) if uses_dry(params) else NO_BREAKERS
        return cls(params, banned_tokens(params, tokenizer), breakers, is_masked=is_masked, keeps_left=keeps_left)

    @staticmethod
    def kernels(params: SamplingParams, tokenizer: Tokenizer, *, is_masked: bool = False,
                keeps_left: bool = False) -> list[str]:
        """What `for_tokenizer` has compiled, unless it is there."""
        biases = dict.fromkeys([*banned_tokens(params, tokenizer), *dict(params.logit_bias)], 0.0)
        return kernels_of(params, make_chain(params, biases, NO_BREAKERS, 0, is_masked=is_masked,
                                             keeps_left=keeps_left))

    @property
    def has_steady_row(self) -> bool:
        """Whether `row` is the same for every token, as long as the vocabulary is."""
        return not (self._is_masked or self._keeps_left or self._n_window)

    def row(self, n_vocab: int, tokens: Sequence[int], mask: Mask | None = None) -> NDArray[np.int64]:
        """What "sample_rows.run" needs to choose the token after `tokens`, but for the places of logits and result.

        Only tokens t whose bit t % 32 is set in word t // 32 of `mask` are chosen; None: any. What is returned, and
        this sampler, must live until it has run. It is not called again while `has_steady_row`, so what it does for a
        token must not matter then.
        """
        if self._is_masked:
            self._mask = mask
            self._chain[0].arguments[MASK.words // 8] = 0 if mask is None else address_of(mask)
        else:
            assert mask is None, "this sampler takes no masks"
        if n_vocab != self._n_vocab:
            self._n_vocab = self._row[N] = self._row[N_VOCAB] = n_vocab
            if self._keeps_left:
                self._make_room_for_left(n_vocab)
        n = min(self._n_window, len(tokens))
        if n:
            if len(self._window) < 3 * n:
                self._window = np.empty(3 * n, np.int32)
                self._row[WINDOW] = address_of(self._window)
            self._window[:n] = tokens[-n:]
            self._row[N_WINDOW] = n
        return self._row

    def failure(self, n_tokens: int) -> GgpyError:
        """Why there was nothing to choose from after `n_tokens` tokens, as after a computation that went wrong."""
        if self._mask is not None and not self._mask.any():
            return GgpyError(f"after {n_tokens:,} tokens no token of this model can go on with what the answer is "
                             "constrained to")
        return GgpyError(f"after {n_tokens:,} tokens the best logit, with bias and penalties, is infinite or no "
                         "number, expected a finite number; is the model file damaged, or are all tokens banned"
                         f"{', or all that the answer may go on with' if self._mask is not None else ''}?")

    def probability(self, token: int, n_top: int) -> TokenProbability:
        """How probable `token`, which was chosen last, was to be drawn, and the most probable `n_top` of all that could
        have been."""
        n = int(self._chain[-1].arguments[LEFT.n // 8])
        return of_weights(self._left_ids[:n], self._left_weights[:n], token, n_top)

    def _make_room_for_left(self, n_vocab: int) -> None:
        size = -(-n_vocab // LANES) * LANES
        if len(self._left_ids) < size:
            self._left_ids, self._left_weights = np.empty(size, np.int32), np.empty(size, np.float32)
            arguments = self._chain[-1].arguments
            arguments[LEFT.ids // 8] = self._left_ids.ctypes.data
            arguments[LEFT.weights // 8] = self._left_weights.ctypes.data


def banned_tokens(params: SamplingParams, tokenizer: Tokenizer) -> set[int]:
    """Tokens that no answer may have."""
    return {*tokenizer.suppress_tokens, *(tokenizer.eog_ids if params.ignore_eos else ())}
