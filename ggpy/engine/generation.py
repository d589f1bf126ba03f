"""A live request, and what it carries from step to step."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ggpy.engine.config import MAX_COUNT
from ggpy.engine.output_text import OutputText
from ggpy.engine.request import FinishReason, Request
from ggpy.engine.sampling import Sampler

if TYPE_CHECKING:
    from ggpy.engine.structured.constraint import Constraint


class Generation:
    """A live request, and what turns logits into its tokens and text."""

    def __init__(self, request: Request, sampler: Sampler, text: OutputText, constraint: Constraint | None,
                 eog_ids: frozenset[int], n_ctx: int, *, synthetic_rates: Sequence[float] = (),
                 shows_special: bool = False) -> None:
        self.request, self.sampler, self.text, self.constraint = request, sampler, text, constraint
        self._eog_ids, self._n_ctx, self._shows_special = eog_ids, n_ctx, shows_special
        self._synthetic_rates = synthetic_rates

    @property
    def num_left(self) -> int:
        """How many tokens the answer may still get."""
        request = self.request
        most = request.params.max_tokens
        if request.context_shift is not None:
            return MAX_COUNT if most is None else most - request.num_generated
        return self.num_free if most is None else min(self.num_free, most - request.num_generated)

    @property
    def num_free(self) -> int:
        """How many tokens the context still holds."""
        return self._n_ctx - len(self.request.tokens)

    def usable_drafts(self) -> tuple[int, ...]:
        """Of the drafts of its request, those that could become part of the answer."""
        most = min(self.num_left, self.num_free) - 1        # one token is chosen after the last draft
        if most <= 0:
            return ()
        drafts = self.request.draft_tokens
        if self.constraint is not None:
            drafts = tuple(self.constraint.forced() or self.constraint.keep_valid(drafts))
        return drafts[:most]

    def num_lucky(self, drafts: Sequence[int]) -> int | None:
        """How many of `drafts` are taken whatever the model says; None: what it says counts, as it should."""
        if not self._synthetic_rates:
            return None
        request = self.request
        drawn = random.Random(len(request.tokens) + (request.params.seed or 0) * MAX_COUNT).random()
        for i, (draft, rate) in enumerate(zip(drafts, self._synthetic_rates, strict=False)):
            if drawn >= rate or (request.params.ignore_eos and draft in self._eog_ids):
                return i
        return min(len(drafts), len(self._synthetic_rates))

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        """Add a token to the answer; returns the text that is certain now, and why the answer ends if it does."""
        request, text = self.request, self.text
        request.tokens.append(token)
        is_end = token in self._eog_ids
        if self.constraint is not None:
            self.constraint.accept(token)
        new_text = "" if is_end and not self._shows_special else text.push(token)
        reason: FinishReason | None = None
        if is_end or text.stopped or (self.constraint is not None and self.constraint.is_finished):
            reason = "stop"
        elif self.num_left <= 0:
            reason = "length"
        if reason is not None and not text.stopped:
            new_text += text.finish()
        return new_text, reason
