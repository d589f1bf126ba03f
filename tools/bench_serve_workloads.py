"""The workloads of a serving benchmark: each makes a plan from a seed, always the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ggpy.tools.bench_serve_plan import PlannedRequest, Symbols, in_order, random_symbols

# ShareGPT's means as Kwon et al. (SOSP 2023, section 6.1) give them; the spread of the log-normal is a choice
CHAT_PROMPT, CHAT_ANSWER, CHAT_SIGMA = 161, 338, 1.0
CHAT_LIMITS = (4, 1024)             # tokens, as usual with that data

SHARED_PREFIX, SHARED_GROUPS = 1024, 4
SHARED_OWN, SHARED_ANSWER = 64, 64

# an agent: instructions and tool descriptions, a task, then steps of a call (the answer) and a result (the next prompt)
SYSTEM_PROMPTS, SYSTEM_TOKENS = 3, (900, 1400)
TASK_TOKENS, STEPS = (40, 160), (4, 8)
CALL_TOKENS, RESULT_TOKENS, READ_TOKENS = (16, 48), (24, 120), (600, 1200)
READ_CHANCE, FORK_CHANCE = 0.08, 0.12
START_GAP_S, TOOL_S, TOKEN_S = 2.0, 0.5, 0.02      # for replays: between sessions, of a tool, of a generated token

EDIT_FILE, EDIT_START, EDIT_ANSWER = 512, 0.1, 0.6      # tokens; shares of the file


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is of a workload, and the seed of its random numbers."""

    n: int                  # requests, or sessions of agents
    scale: float = 1.0      # of all lengths
    seed: int = 0

    def tokens(self, n: float) -> int:
        """`n` tokens, scaled; at least one."""
        return max(1, round(n * self.scale))


class Draws:
    """Random lengths of one workload."""

    def __init__(self, size: Size, *seed: int) -> None:
        self.rng = np.random.default_rng((size.seed, *seed))
        self.size = size

    def between(self, limits: tuple[int, int]) -> int:
        """A scaled number of tokens, both limits included."""
        return self.size.tokens(int(self.rng.integers(limits[0], limits[1] + 1)))

    def log_normal(self, mean: float) -> NDArray[np.int64]:
        """`size.n` lengths of that mean before they are cut to CHAT_LIMITS, scaled."""
        values = self.rng.lognormal(np.log(mean) - CHAT_SIGMA**2 / 2, CHAT_SIGMA, self.size.n)
        return np.maximum(1, np.clip(values, *CHAT_LIMITS) * self.size.scale).round().astype(np.int64)


def chat(size: Size) -> list[PlannedRequest]:
    """Questions and answers of ShareGPT's lengths, nothing shared."""
    draws = Draws(size, 10)
    lengths = zip(draws.log_normal(CHAT_PROMPT), draws.log_normal(CHAT_ANSWER), strict=True)
    return [PlannedRequest(random_symbols(int(n_prompt), size.seed, 10, i), int(n_output), session=i)
            for i, (n_prompt, n_output) in enumerate(lengths)]


def shared(size: Size) -> list[PlannedRequest]:
    """Groups of requests that begin with the same long text, mixed."""
    draws = Draws(size, 11)
    prefixes = [random_symbols(size.tokens(SHARED_PREFIX), size.seed, 11, 0, i) for i in range(SHARED_GROUPS)]
    groups = draws.rng.permutation(np.arange(size.n) % SHARED_GROUPS)
    own = [random_symbols(size.tokens(SHARED_OWN), size.seed, 11, 1, i) for i in range(size.n)]
    return [PlannedRequest(np.concatenate([prefixes[groups[i]], own[i]]), size.tokens(SHARED_ANSWER), session=i)
            for i in range(size.n)]


def edit(size: Size) -> list[PlannedRequest]:
    """A text, and its beginning once more: a model goes on repeating it, as one does that edits code."""
    file = size.tokens(EDIT_FILE)
    n_start, n_output = max(1, int(EDIT_START * file)), max(1, int(EDIT_ANSWER * file))
    texts = [random_symbols(file, size.seed, 12, i) for i in range(size.n)]
    return [PlannedRequest(np.concatenate([text, text[:n_start]]), n_output, session=i) for i, text in enumerate(texts)]


def agent(size: Size) -> list[PlannedRequest]:
    """Sessions of agents over a few system prompts: small steps, now and then a large read; some fork off others."""
    draws = Draws(size, 13)
    systems = [random_symbols(draws.between(SYSTEM_TOKENS), size.seed, 13, 0, i) for i in range(SYSTEM_PROMPTS)]
    requests: list[PlannedRequest] = []
    start_s = 0.0
    for session in range(size.n):
        start_s += float(draws.rng.exponential(START_GAP_S))
        forked = int(draws.rng.integers(len(requests))) if requests and draws.rng.random() < FORK_CHANCE else None
        task = random_symbols(draws.between(TASK_TOKENS), size.seed, 13, 1, session)
        first = task if forked is not None else np.concatenate([systems[session % SYSTEM_PROMPTS], task])
        requests += _steps(draws, session, first, forked, len(requests), max(
            start_s, 0.0 if forked is None else requests[forked].arrival_s))
    return in_order(requests)


def _steps(draws: Draws, session: int, first: Symbols, parent: int | None, index: int,
           arrival_s: float) -> list[PlannedRequest]:
    """The requests of one session, the first of which gets `index`."""
    steps: list[PlannedRequest] = []
    for step in range(int(draws.rng.integers(STEPS[0], STEPS[1] + 1))):
        is_read = draws.rng.random() < READ_CHANCE
        n_result = draws.between(READ_TOKENS if is_read else RESULT_TOKENS)
        added = random_symbols(n_result, draws.size.seed, 13, 2, session, step) if step else first
        n_output = draws.between(CALL_TOKENS)
        steps.append(PlannedRequest(added, n_output, session, parent, arrival_s))
        parent, index = index, index + 1
        arrival_s += n_output * TOKEN_S + float(draws.rng.exponential(TOOL_S))
    return steps


WORKLOADS: dict[str, Callable[[Size], list[PlannedRequest]]] = {
    "chat": chat, "shared": shared, "edit": edit, "agent": agent}
