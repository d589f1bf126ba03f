"""The figures of a run: latencies, rates, goodput and what the prefix cache saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ggpy.tools.bench_serve_bound import bound
from ggpy.tools.bench_serve_load import Record

QUANTILES = (50, 95, 99, 100)       # 100: the maximum


@dataclass(frozen=True, slots=True)
class Goals:
    """What a request must keep to count as good; None: no matter."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None

    def are_met(self, record: Record) -> bool:
        """Whether `record` keeps all of them."""
        values = (ttft_ms(record), tpot_ms(record) or 0.0, e2e_ms(record))
        limits = (self.ttft_ms, self.tpot_ms, self.e2e_ms)
        return all(limit is None or value <= limit for value, limit in zip(values, limits, strict=True))


def ttft_ms(record: Record) -> float:
    """Time to the first token."""
    return 1000 * (record.answer.times_s[0] - record.due_s)


def e2e_ms(record: Record) -> float:
    """Time to the last one."""
    return 1000 * (record.answer.times_s[-1] - record.due_s)


def tpot_ms(record: Record) -> float | None:
    """Time per output token behind the first; None if there is none."""
    answer = record.answer
    n = answer.n_tokens - 1
    return 1000 * (answer.times_s[-1] - answer.times_s[0]) / n if n > 0 else None


def gaps_ms(record: Record) -> list[float]:
    """Inter-token latencies: what a reader waits between two arrivals; tokens that came together have one."""
    gaps: list[float] = (1000 * np.diff(record.answer.times_s)).tolist()
    return gaps


def quantiles(values: Sequence[float]) -> dict[str, float] | None:
    """p50, p95, p99 and max, linear between two values; None without values."""
    if not values:
        return None
    found = np.percentile(values, QUANTILES)
    return {"max" if q == 100 else f"p{q}": float(value) for q, value in zip(QUANTILES, found, strict=True)}


@dataclass(frozen=True, slots=True)
class Summary:
    """One run. Rates are a second of it, from the first request due to the last answer's end; None: not known."""

    target: str
    load: str                               # such as "8 clients" or "2 requests/s"
    n_requests: int
    n_ok: int
    n_rejected: int                         # refused because the server was busy
    n_failed: int
    duration_s: float
    n_prompt: int                           # tokens of the requests that went well
    n_output: int
    ttft_ms: dict[str, float] | None
    tpot_ms: dict[str, float] | None
    itl_ms: dict[str, float] | None
    e2e_ms: dict[str, float] | None
    output_tokens_per_s: float
    total_tokens_per_s: float               # prompts, cached or not, and answers
    requests_per_s: float
    goodput_per_s: float | None             # requests that kept the goals
    hit_rate: float | None                  # of prompt tokens, those that the target had cached
    hit_rate_unlimited: float               # of a cache that forgets nothing
    hit_rate_lru: float | None              # of one that holds as many tokens as the target's
    pool_tokens: int | None                 # how many those are
    n_unique: int                           # tokens that a cache which forgets nothing holds
    n_preempted: int | None
    problems: tuple[str, ...] = ()          # some messages

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def summarise(records: Sequence[Record], *, target: str, load: str, goals: Goals | None = None,
              pool_tokens: int | None = None, n_preempted: int | None = None) -> Summary:
    """The figures of `records`, which are in the order in which they were due."""
    ok = [record for record in records if record.is_ok]
    duration_s = max((r.end_s for r in records), default=0.0) - min((r.due_s for r in records), default=0.0)
    n_prompt, n_output = sum(len(r.prompt) for r in ok), sum(r.answer.n_tokens for r in ok)
    unlimited = bound(r.access for r in ok)
    cached = [r.answer.n_cached for r in ok]
    known = [n for n in cached if n is not None]

    def rate(amount: float) -> float:
        return amount / duration_s if duration_s else 0.0

    return Summary(
        target=target, load=load, n_requests=len(records), n_ok=len(ok),
        n_rejected=sum(r.answer.problem == "rejected" for r in records),
        n_failed=sum(not r.is_ok and r.answer.problem != "rejected" for r in records), duration_s=duration_s,
        n_prompt=n_prompt, n_output=n_output, ttft_ms=quantiles([ttft_ms(r) for r in ok]),
        tpot_ms=quantiles([value for r in ok if (value := tpot_ms(r)) is not None]),
        itl_ms=quantiles([gap for r in ok for gap in gaps_ms(r)]), e2e_ms=quantiles([e2e_ms(r) for r in ok]),
        output_tokens_per_s=rate(n_output), total_tokens_per_s=rate(n_prompt + n_output), requests_per_s=rate(len(ok)),
        goodput_per_s=None if goals is None else rate(sum(map(goals.are_met, ok))),
        hit_rate=sum(known) / n_prompt if known and len(known) == len(cached) else None,
        hit_rate_unlimited=unlimited.hit_rate,
        hit_rate_lru=None if pool_tokens is None else bound((r.access for r in ok), pool_tokens).hit_rate,
        pool_tokens=pool_tokens, n_unique=unlimited.n_unique, n_preempted=n_preempted,
        problems=tuple(dict.fromkeys(r.answer.message for r in records if r.answer.message))[:3])
