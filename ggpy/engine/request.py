"""A request as the engine carries it from its prompt to its last token."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ggpy.backends.base import Scales
from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.kv_cache import Miss, SequenceKV
from ggpy.engine.prefix_node import TOKEN_BYTES, to_key
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
from ggpy.errors import GgpyError

State = Literal["new", "waiting", "running", "finished"]
FinishReason = Literal["stop", "length", "cancelled", "error"]

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class ContextShift:
    """What goes when the context is full, instead of the answer ending there."""

    n_keep: int = 0             # tokens at the beginning that stay
    n_discard: int = 0          # tokens behind them that go; 0: half of all that follow

    def shifted(self, tokens: Sequence[int]) -> list[int]:
        """What stays of `tokens`, of which there are 5 at least."""
        n_keep = min(self.n_keep, len(tokens) - 4)
        n_left = len(tokens) - n_keep
        n_discard = min(self.n_discard or n_left // 2, n_left - 1)
        return [*tokens[:n_keep], *tokens[n_keep + n_discard :]]


@dataclass(eq=False)
class Request:
    """One prompt and the answer to it.

    There are no phases: `tokens` grows as tokens are sampled, and the first `num_computed` of them have their keys
    and values in the pages of `kv`. A preempted request simply has nothing computed again.
    """

    prompt_tokens: Sequence[int]
    params: SamplingParams = field(default_factory=SamplingParams)
    constraint: ConstraintSpec | None = None            # what the answer must look like
    probabilities: ProbabilitySpec | None = None        # what to tell of each token
    priority: int = 0                                   # higher is served first, and may take a running seat
    deadline_s: float | None = None                     # as time.perf_counter tells it; later it ends with an error
    salt: int = 0                                       # prefixes are shared among requests of one salt
    adapters: Scales | None = None                      # how much of each adapter it gets; None: what is usual
    context_shift: ContextShift | None = None           # None: the answer ends where the context does
    tells_progress: bool = False                        # events tell how far its prompt is read
    keeps: tuple[tuple[int, float], ...] = ()           # so many of its tokens are evicted last for so many seconds
    id: int = field(default_factory=lambda: next(_ids))
    state: State = "new"
    finish_reason: FinishReason | None = None
    error: GgpyError | None = None                      # why, if the finish reason is "error"
    tokens: list[int] = field(init=False)               # the prompt, then what was generated
    draft_tokens: tuple[int, ...] = ()                  # what may follow them, to be verified in the next step
    kv: SequenceKV | None = None                        # its pages, while it runs
    num_computed: int = 0
    num_cached: int | None = None                       # prompt tokens that were not computed; None: not yet known
    miss: Miss | None = None                            # why it was no more of them; None: not yet known
    num_discarded: int = 0                              # tokens that the context shift has taken out of `tokens`
    num_preempted: int = 0                              # times it gave way
    num_drafted: int = 0                                # draft tokens verified so far
    num_accepted: int = 0                               # of these, tokens of the answer
    added_s: float = field(default_factory=time.perf_counter)
    admitted_s: float | None = None                     # when it first ran
    first_token_s: float | None = None
    last_token_s: float | None = None

    def __post_init__(self) -> None:
        self.params = self.params.with_seed()
        self.tokens = list(self.prompt_tokens)

    @property
    def num_pending(self) -> int:
        """Tokens still to compute before the next one can be sampled."""
        return len(self.tokens) - self.num_computed

    @property
    def keeps_left(self) -> bool:
        """Whether its sampler has to keep what it chooses among, to tell it."""
        return self.probabilities is not None and self.probabilities.after_sampling

    @property
    def is_generating(self) -> bool:
        """Whether the next step samples a token for sure: all tokens but the last one are computed."""
        return len(self.tokens) - self.num_computed == 1

    @property
    def num_generated(self) -> int:
        return len(self.tokens) + self.num_discarded - len(self.prompt_tokens)

    @property
    def output_tokens(self) -> list[int]:
        """What was generated so far and is still there, with the token that ended the answer."""
        return self.tokens[max(0, len(self.prompt_tokens) - self.num_discarded):]

    def key(self, n_tokens: int) -> bytes:
        """The first tokens as bytes, as the tree of prefixes has them."""
        if n_tokens <= len(self.prompt_tokens) and not self.num_discarded:
            return self.prompt_bytes[: TOKEN_BYTES * n_tokens]
        return to_key(self.tokens[:n_tokens])

    @functools.cached_property
    def prompt_bytes(self) -> bytes:
        """The prompt as int64, 8 bytes a token: quick to compare."""
        return np.asarray(self.prompt_tokens, np.int64).tobytes()


@dataclass(slots=True)      # frozen ones take six times as long to make, and each step makes many
class Event:
    """What one step brought to a request."""

    request_id: int
    tokens: tuple[int, ...] = ()                        # new tokens
    text: str = ""                                      # new text; it may lag behind the tokens
    finish_reason: FinishReason | None = None           # set in the request's last event
    error: GgpyError | None = None                      # why, if the finish reason is "error"
    num_cached: int = 0                                 # tokens of the prompt that were not computed
    miss: Miss | None = None                            # in the last event: why it was no more of them
    time_s: float = field(default_factory=time.perf_counter)
    probabilities: tuple[TokenProbability, ...] = ()    # of the new tokens, if they were asked for
    num_read: int | None = None                         # tokens of the prompt that are computed; None: it is all
    num_drafted: int = 0                                # tokens that were guessed so far
    num_accepted: int = 0                               # of these, tokens of the answer
    admitted_s: float | None = None                     # when the request first ran, on the clock of `time_s`
