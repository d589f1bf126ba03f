"""A request as the engine carries it from its prompt to its last token."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.errors import GgpyError

State = Literal["new", "waiting", "running", "finished"]
FinishReason = Literal["stop", "length", "cancelled", "error"]

_ids = itertools.count(1)


@dataclass(slots=True, eq=False)
class Request:
    """One prompt and the answer to it.

    There are no phases: `tokens` grows as tokens are sampled, and the first `num_computed` of them have their keys
    and values in the pages of `page_table`. A preempted request simply has nothing computed again.
    """

    prompt_tokens: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    id: int = field(default_factory=lambda: next(_ids))
    state: State = "new"
    finish_reason: FinishReason | None = None
    error: GgpyError | None = None                      # why, if the finish reason is "error"
    tokens: list[int] = field(init=False)               # the prompt, then what was generated
    num_computed: int = 0
    num_cached: int | None = None                       # prompt tokens that were not computed; None: not yet known
    salt: int = 0                                       # computed prefixes are shared within one salt alone
    draft_tokens: tuple[int, ...] = ()                  # guesses of what follows `tokens`, checked in the next step
    page_table: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    added_s: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self.params = self.params.with_seed()
        self.tokens = list(self.prompt_tokens)

    @property
    def num_pending(self) -> int:
        """Tokens still to compute before the next one can be sampled."""
        return len(self.tokens) - self.num_computed

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.prompt_tokens)

    @property
    def output_tokens(self) -> list[int]:
        """What was generated so far, with the token that ended the answer."""
        return self.tokens[len(self.prompt_tokens):]


@dataclass(frozen=True, slots=True)
class Event:
    """What one step brought to a request."""

    request_id: int
    tokens: tuple[int, ...] = ()                        # new tokens
    text: str = ""                                      # new text; it may lag behind the tokens
    finish_reason: FinishReason | None = None           # set in the request's last event
    error: GgpyError | None = None                      # why, if the finish reason is "error"
    num_cached: int = 0                                 # tokens of the prompt that were not computed
    time_s: float = field(default_factory=time.perf_counter)
