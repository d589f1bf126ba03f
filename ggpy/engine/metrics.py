"""What an engine counts and times, and how it tells: Prometheus text and a plain dict.

Counting happens in the engine's thread, in plain attributes, and costs a few microseconds a step; everything else
happens when somebody asks. Whoever asks in another thread may find one observation counted in one place and not yet in
another, but never a histogram that contradicts itself.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# upper bounds of buckets, in seconds
STEP_BOUNDS_S = (0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3,
                 0.5, 0.75, 1.0, 2.0, 5.0)
REQUEST_BOUNDS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5,
                    10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
# and in tokens or requests
COUNT_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LENGTH_BOUNDS = (1, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000)


class PageUse(NamedTuple):
    """The pages of one group of the KV cache, counted."""

    free: int
    idle: int           # kept for requests that begin alike; they give way to whoever needs pages
    held: int           # by running requests


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """What an engine has to do at a moment."""

    n_running: int = 0
    n_waiting: int = 0
    pages: Sequence[PageUse] = ()       # of each group of layers


@dataclass(frozen=True, slots=True)
class StepStats:
    """One step: what it computed, and how long it took."""

    n_rows: int                         # tokens computed, all requests together
    n_prompt_rows: int                  # those of them that read a prompt, or read again what preemption dropped
    n_running: int                      # requests that the step served
    step_s: float                       # from scheduling to the last event
    forward_s: float                    # of that, the forward pass
    longest: int = 0                    # tokens of the longest request of the step
    n_preempted: int = 0                # requests that had to give up their pages
    n_drafted: int = 0                  # drafted tokens that were verified
    accepted: Sequence[int] = ()        # how many were accepted of each request's draft


@dataclass(frozen=True, slots=True)
class RequestStats:
    """One request that has ended; times that it did not live to see are None."""

    finish_reason: str
    n_prompt: int
    n_generated: int
    e2e_s: float                        # from its arrival to its end
    prefill_s: float | None = None      # from when it was admitted to its first token
    decode_s: float | None = None       # from there to its last token


class Histogram:
    """Counts observations by the first of `bounds` that they do not exceed; the last count is of those beyond all."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(slots=True)
class Rate:
    """Tokens and the seconds that they took, in all and when they were last asked for."""

    n_tokens: int = 0
    seconds: float = 0.0
    n_tokens_before: int = 0
    seconds_before: float = 0.0

    def add(self, n_tokens: int, seconds: float) -> None:
        self.n_tokens += n_tokens
        self.seconds += seconds

    def since_last(self) -> float:
        """Tokens per second since the last call; 0 without any."""
        n_tokens, seconds = self.n_tokens - self.n_tokens_before, self.seconds - self.seconds_before
        self.n_tokens_before, self.seconds_before = self.n_tokens, self.seconds
        return n_tokens / seconds if seconds > 0 else 0.0


class EngineMetrics:
    """The metrics of one engine since its start. docs/metrics.md lists what `text` names.

    `load` says what the engine has to do at the moment when somebody asks; it is called in the thread that asks.
    """

    def __init__(self, load: Callable[[], EngineLoad] = EngineLoad) -> None:
        self.load = load
        self.started_s = time.time()                    # since 1970
        # requests
        self.n_queued = 0
        self.n_rejected = 0
        self.n_finished: Counter[str] = Counter()       # by reason
        self.n_looked_up = 0                            # prompt tokens of requests whose prompt is read
        self.n_cached = 0                               # those of them that were in the cache
        self.n_missed: Counter[str] = Counter()         # those requests, by why no more was in the cache
        self.ttft_s = Histogram(REQUEST_BOUNDS_S)
        self.queue_s = Histogram(REQUEST_BOUNDS_S)
        self.prefill_s = Histogram(REQUEST_BOUNDS_S)
        self.decode_s = Histogram(REQUEST_BOUNDS_S)
        self.e2e_s = Histogram(REQUEST_BOUNDS_S)
        self.gap_s = Histogram(STEP_BOUNDS_S)
        self.n_prompt = Histogram(LENGTH_BOUNDS)
        self.n_generated = Histogram(LENGTH_BOUNDS)
        # steps
        self.step_s = Histogram(STEP_BOUNDS_S)
        self.forward_s = Histogram(STEP_BOUNDS_S)
        self.n_rows = Histogram(COUNT_BOUNDS)
        self.n_running = Histogram(COUNT_BOUNDS)
        self.n_preempted = 0
        self.longest = 0                                # tokens of the longest request so far
        self.prompt = Rate()                            # tokens computed, and the time of passes that computed some
        self.generation = Rate()                        # tokens behind the first, and the requests' times, added up
        # audits of the cache
        self.n_audits = 0
        self.n_audit_differences = 0
        # drafts
        self.n_drafted = 0
        self.n_drafts = 0
        self.n_accepted_at: list[int] = []              # by position in the draft

    @property
    def n_accepted(self) -> int:
        return sum(self.n_accepted_at)

    @property
    def n_predicted(self) -> int:
        """Tokens generated."""
        return sum(self.ttft_s.counts) + self.generation.n_tokens

    def queued(self) -> None:
        """A request was taken."""
        self.n_queued += 1

    def rejected(self) -> None:
        """A request was refused, since too many wait."""
        self.n_rejected += 1

    def admitted(self, queue_s: float) -> None:
        """A request runs for the first time."""
        self.queue_s.observe(queue_s)

    def looked_up(self, n_prompt: int, n_cached: int, miss_cause: str) -> None:
        """A request's prompt is read; `n_cached` of its `n_prompt` tokens were in the cache."""
        self.n_looked_up += n_prompt
        self.n_cached += n_cached
        self.n_missed[miss_cause] += 1

    def embedded(self, n_tokens: int, step_s: float) -> None:
        """A pass computed texts without generating; `n_tokens` of them are done with it."""
        self.step_s.observe(step_s)
        self.prompt.add(n_tokens, step_s)

    def first_token(self, ttft_s: float, n_tokens: int = 1) -> None:
        """A request got its first token, and drafts that were right with it, `ttft_s` after its arrival."""
        self.ttft_s.observe(ttft_s)
        self.generation.add(n_tokens - 1, 0.0)

    def inter_token(self, gap_s: float, n_tokens: int = 1) -> None:
        """A request got `n_tokens` in one step, `gap_s` after those before."""
        self.gap_s.observe(gap_s)
        self.generation.add(n_tokens, gap_s)

    def step(self, stats: StepStats) -> None:
        self.step_s.observe(stats.step_s)
        self.forward_s.observe(stats.forward_s)
        self.n_rows.observe(stats.n_rows)
        self.n_running.observe(stats.n_running)
        self.n_preempted += stats.n_preempted
        self.longest = max(self.longest, stats.longest)
        if stats.n_prompt_rows:
            self.prompt.add(stats.n_prompt_rows, stats.forward_s)
        self.n_drafted += stats.n_drafted
        self.n_drafts += len(stats.accepted)
        for n_accepted in stats.accepted:
            self.n_accepted_at += [0] * (n_accepted - len(self.n_accepted_at))
            for i in range(n_accepted):
                self.n_accepted_at[i] += 1

    def audited(self, n_differences: int) -> None:
        """What a request reused was computed again, and so many differences were found."""
        self.n_audits += 1
        self.n_audit_differences += n_differences

    def finished(self, stats: RequestStats) -> None:
        """A request ended, however it did."""
        self.n_finished[stats.finish_reason] += 1
        self.e2e_s.observe(stats.e2e_s)
        self.n_prompt.observe(stats.n_prompt)
        self.n_generated.observe(stats.n_generated)
        if stats.prefill_s is not None:
            self.prefill_s.observe(stats.prefill_s)
        if stats.decode_s is not None:
            self.decode_s.observe(stats.decode_s)

    def text(self) -> str:
        """Everything in Prometheus's text format. llama-server's two speeds are those since the last call."""
        # its library takes 50 ms to import: an engine that nobody asks starts without it
        from ggpy.engine import prometheus

        return prometheus.text(self)

    def snapshot(self) -> dict[str, Any]:
        """The counts in plain types, for a display or JSON. Reading them changes nothing."""
        load = self.load()
        return {
            "started_s": self.started_s,
            "n_running": load.n_running, "n_waiting": load.n_waiting,
            "pages": [use._asdict() for use in load.pages],
            "n_queued": self.n_queued, "n_rejected": self.n_rejected, "n_finished": dict(self.n_finished),
            "n_looked_up": self.n_looked_up, "n_cached": self.n_cached, "n_missed": dict(self.n_missed),
            "n_steps": sum(self.step_s.counts), "n_preempted": self.n_preempted, "longest": self.longest,
            "n_prompt": self.prompt.n_tokens, "prompt_s": self.prompt.seconds,
            "n_predicted": self.n_predicted, "generation_s": self.generation.seconds,
            "n_drafts": self.n_drafts, "n_drafted": self.n_drafted, "n_accepted": self.n_accepted,
        }
