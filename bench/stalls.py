"""What a running stream and a long prompt cost each other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from statistics import median
from time import perf_counter

from ggpy.tools.bench_serve_plan import random_symbols
from ggpy.tools.bench_serve_targets import Answer, Target

N_STREAM_PROMPT, N_IDLE = 32, 64    # tokens of the stream's prompt, and of its answer when nothing else runs
N_AROUND, POLL_S = 8, 0.005         # tokens of the stream before the prompt comes, and after it was read
WORST_FACTOR, WORST_MS = 4, 100     # a gap is small up to either


@dataclass(frozen=True, slots=True)
class Stall:
    """One engine's figures; a gap is between two arrivals of the stream."""

    target: str
    n_prompt: int
    idle_gap_ms: float                  # median, while nothing else runs
    worst_gap_ms: float                 # while the prompt is read
    prompt_tokens_per_s: float          # alone
    prompt_tokens_per_s_beside: float   # while the stream runs

    @property
    def gap_limit_ms(self) -> float:
        """What a small gap is: so many times the idle one, or so many milliseconds."""
        return max(WORST_FACTOR * self.idle_gap_ms, WORST_MS)

    @property
    def share(self) -> float:
        """Of the prompt's speed alone, what is left beside the stream."""
        return self.prompt_tokens_per_s_beside / self.prompt_tokens_per_s

    def as_json(self) -> dict[str, object]:
        """All figures."""
        return asdict(self) | {"gap_limit_ms": self.gap_limit_ms, "share": self.share}


async def measure_stall(target: Target, words: Sequence[int], n_prompt: int, n_ctx: int, seed: int = 0) -> Stall:
    """Reads `n_prompt` tokens alone, then as many others beside a stream. Raises SystemExit if a request fails."""
    def prompt(length: int, i: int) -> list[int]:
        return [words[symbol % len(words)] for symbol in random_symbols(length, seed, 20, i).tolist()]

    idle = checked(await target.complete(prompt(N_STREAM_PROMPT, 0), N_IDLE))
    idle_gap_s = median(gaps(idle))
    start = perf_counter()
    alone_s = checked(await target.complete(prompt(n_prompt, 1), 1)).times_s[0] - start
    answer = Answer()
    stream = asyncio.create_task(target.complete(prompt(N_STREAM_PROMPT, 2), n_ctx - N_STREAM_PROMPT - 1, answer))
    await more_tokens(stream, answer)
    start = perf_counter()
    end = checked(await target.complete(prompt(n_prompt, 3), 1)).times_s[0]
    await more_tokens(stream, answer)
    stream.cancel()
    await asyncio.wait([stream])
    return Stall(target.name, n_prompt, 1000 * idle_gap_s, 1000 * worst_gap(checked(answer).times_s, start, end),
                 n_prompt / alone_s, n_prompt / (end - start))


async def more_tokens(stream: asyncio.Task[Answer], answer: Answer) -> None:
    """Wait until `stream` has brought N_AROUND more tokens, or has ended."""
    target = answer.n_tokens + N_AROUND
    while answer.n_tokens < target and not stream.done():
        await asyncio.sleep(POLL_S)


def worst_gap(times_s: Sequence[float], start: float, end: float) -> float:
    """The longest gap that touches the time from `start` to `end`. Raises SystemExit if the arrivals end before."""
    if times_s[-1] < end or times_s[0] > start:
        raise SystemExit("the stream did not last as long as the prompt was read; choose a larger context, or fewer "
                         "tokens (--prompt)")
    return max(b - a for a, b in pairwise(times_s) if b >= start and a <= end)


def gaps(answer: Answer) -> list[float]:
    """Seconds between arrivals."""
    return [b - a for a, b in pairwise(answer.times_s)]


def checked(answer: Answer) -> Answer:
    """`answer`, if there is one."""
    if answer.problem or not answer.times_s:
        raise SystemExit(f"a request failed: {answer.message}")
    return answer
