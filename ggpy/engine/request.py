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
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
from ggpy.engine.radix import Miss, SequenceKV
from ggpy.errors import GgpyError

State = Literal["new", "waiting", "running", "finished"]
FinishReason = Literal["stop", "length", "cancelled", "error"]

_ids = itertools.count(1)


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
    def is_generating(self) -> bool:
        """Whether the next step samples a token for sure: all tokens but the last one are computed."""
        return self.num_pending == 1

    @property
    def num_generated(self) -> int:
        return len(self.tokens) - len(self.prompt_tokens)

    @property
    def output_tokens(self) -> list[int]:
        """What was generated so far, with the token that ended the answer."""
        return self.tokens[len(self.prompt_tokens):]

    @functools.cached_property
    def prompt_bytes(self) -> bytes:
        """The prompt as int64, 8 bytes a token: quick to compare."""
        return np.asarray(self.prompt_tokens, np.int64).tobytes()


@dataclass(frozen=True, slots=True)
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
