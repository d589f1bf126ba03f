"""What a serving benchmark sends: requests with tokens, lengths, times, and which one continues which.

Tokens are *symbols*, numbers below N_SYMBOLS; the model's own tokens of common words take their place when they are
sent, so a plan is the same for every model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.recording import BlockIds, TraceLine

N_SYMBOLS = 4096
Symbols = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRequest:
    """One prompt, and how long its answer is to be."""

    added: Symbols                  # the prompt, behind the parent's prompt and answer if there is a parent
    n_output: int
    session: int                    # turns of a session follow each other
    parent: int | None = None       # index of an earlier request
    arrival_s: float = 0.0          # from the beginning; plans are sorted by it


Plan = Sequence[PlannedRequest]


def random_symbols(n: int, *seed: int) -> Symbols:
    """`n` symbols, always the same for the same seed."""
    return np.random.default_rng(seed).integers(0, N_SYMBOLS, n, np.int32)


def expected_answer(plan: Plan, index: int) -> Symbols:
    """What stands for the answer where the model's own is not known: before the run, or if a server does not tell."""
    return random_symbols(plan[index].n_output, 1, index)


def expected_prompts(plan: Plan) -> list[Symbols]:
    """The whole prompts, as they are if answers are the expected ones."""
    prompts: list[Symbols] = []
    for request in plan:
        before = [] if request.parent is None else [prompts[request.parent], expected_answer(plan, request.parent)]
        prompts.append(np.concatenate([*before, request.added]))
    return prompts


def sessions(plan: Plan) -> list[list[int]]:
    """The requests of each session, in order; sessions in the order of their first ones."""
    found: dict[int, list[int]] = {}
    for i, request in enumerate(plan):
        found.setdefault(request.session, []).append(i)
    return list(found.values())


def in_order(plan: Plan) -> list[PlannedRequest]:
    """`plan`, sorted by arrival. No request may arrive before its parent."""
    order = sorted(range(len(plan)), key=lambda i: plan[i].arrival_s)
    place = {index: i for i, index in enumerate(order)}
    return [replace(plan[i], parent=None if (parent := plan[i].parent) is None else place[parent]) for i in order]


def with_rate(plan: Plan, rate: float, seed: int) -> list[PlannedRequest]:
    """`plan` with sessions that begin as a Poisson process does, `rate` a second; within one, times stay."""
    rng = np.random.default_rng((2, seed))
    starts = {indices[0]: start for indices, start in
              zip(sessions(plan), rng.exponential(1 / rate, len(sessions(plan))).cumsum(), strict=True)}
    shifts = {plan[first].session: start - plan[first].arrival_s for first, start in starts.items()}
    moved = [replace(request, arrival_s=request.arrival_s + shifts[request.session]) for request in plan]
    for i, request in enumerate(moved):     # a fork may not come before what it continues
        if request.parent is not None:
            moved[i] = replace(request, arrival_s=max(request.arrival_s, moved[request.parent].arrival_s))
    return in_order(moved)


def to_trace(plan: Plan) -> list[TraceLine]:
    """The plan's lines in a trace."""
    blocks = BlockIds()
    return [TraceLine(1000 * request.arrival_s, len(prompt), request.n_output, blocks.of(prompt.tolist()),
                      session=request.session, parent=request.parent)
            for request, prompt in zip(plan, expected_prompts(plan), strict=True)]


def from_trace(lines: Sequence[TraceLine], seed: int = 0) -> list[PlannedRequest]:
    """A plan whose prompts share what those of the trace do, block by block, and answers with the turns after them."""
    requests = []
    for i, line in enumerate(lines):
        parent = line.parent
        n_before = 0 if parent is None else lines[parent].input_length + lines[parent].output_length
        if n_before >= line.input_length:
            parent, n_before = None, 0
        session = len(lines) + i if line.session is None else line.session
        requests.append(PlannedRequest(_prompt(line, seed)[n_before:], line.output_length, session, parent,
                                       line.timestamp_ms / 1000))
    return in_order(requests)


def _prompt(line: TraceLine, seed: int) -> Symbols:
    blocks = [random_symbols(line.block_tokens, 3, seed, block) for block in line.hash_ids]
    return np.concatenate(blocks)[: line.input_length]


def cut_to(plan: Plan, n_ctx: int) -> list[PlannedRequest]:
    """`plan` without requests that a context of `n_ctx` tokens does not hold, nor those that continue them."""
    kept: dict[int, int] = {}       # index before -> index
    requests: list[PlannedRequest] = []
    for i, (request, prompt) in enumerate(zip(plan, expected_prompts(plan), strict=True)):
        parent = request.parent
        if len(prompt) + request.n_output > n_ctx or (parent is not None and parent not in kept):
            continue
        kept[i] = len(requests)
        requests.append(replace(request, parent=None if parent is None else kept[parent]))
    return requests
