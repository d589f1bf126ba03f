"""Sends a plan to a target: so many clients, or at the times of the plan; notes when everything happened."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ggpy.tools.bench_serve_bound import Access
from ggpy.tools.bench_serve_plan import N_SYMBOLS, Plan, Symbols, expected_answer, sessions
from ggpy.tools.bench_serve_targets import Answer, Target


@dataclass(frozen=True, slots=True)
class Record:
    """A request that was sent, and what came of it."""

    prompt: list[int]
    due_s: float            # when it was to be sent, as time.perf_counter has it: its client had nothing to wait for
    end_s: float
    answer: Answer

    @property
    def is_ok(self) -> bool:
        return not self.answer.problem and bool(self.answer.times_s)

    @property
    def access(self) -> Access:
        """As a cache sees it."""
        return Access([*self.prompt, *self.answer.tokens], len(self.prompt))


Progress = Callable[[int, int], None]       # requests that have ended, of how many


class Load:
    """One run of `plan` against `target`, whose tokens `words` take the place of the plan's symbols."""

    def __init__(self, plan: Plan, target: Target, words: Sequence[int], progress: Progress) -> None:
        self._plan, self._target, self._progress = plan, target, progress
        self._tokens = np.resize(np.asarray(words, np.int32), N_SYMBOLS)
        self._prompts: dict[int, list[int]] = {}        # of the requests that were sent
        self._records: dict[int, Record] = {}
        self._ended = [asyncio.Event() for _ in plan]

    async def closed(self, n_clients: int) -> list[Record]:
        """Each client takes the next session when it is done with one, and sends its turns as answers come."""
        waiting = iter(sessions(self._plan))
        await asyncio.gather(*(self._client(waiting) for _ in range(n_clients)))
        return self._in_order()

    async def open(self, time_scale: float = 1.0) -> list[Record]:
        """Requests go out at the plan's times, times `time_scale`, but never before what they continue has ended."""
        start_s = time.perf_counter()
        await asyncio.gather(*(self._send_at(i, start_s + time_scale * request.arrival_s)
                               for i, request in enumerate(self._plan)))
        return self._in_order()

    async def _client(self, waiting: Iterator[list[int]]) -> None:
        # of sessions that fork each other the one in front was taken before, so nobody waits for ever
        for turns in waiting:
            for index in turns:
                await self._send_at(index, time.perf_counter())

    async def _send_at(self, index: int, due_s: float) -> None:
        parent = self._plan[index].parent
        if parent is not None:
            await self._ended[parent].wait()
            due_s = max(due_s, self._records[parent].end_s)
        if (wait_s := due_s - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        prompt = self._prompts[index] = self._prompt(index)
        answer = await self._target.complete(prompt, self._plan[index].n_output)
        self._records[index] = Record(prompt, due_s, time.perf_counter(), answer)
        self._ended[index].set()
        self._progress(len(self._records), len(self._plan))

    def _prompt(self, index: int) -> list[int]:
        """The parent's prompt and answer, the expected one if the target does not tell, and what is added."""
        request = self._plan[index]
        added = self._as_tokens(request.added)
        if request.parent is None:
            return added
        answer = self._records[request.parent].answer.tokens
        return [*self._prompts[request.parent],
                *(answer or self._as_tokens(expected_answer(self._plan, request.parent))), *added]

    def _as_tokens(self, symbols: Symbols) -> list[int]:
        tokens: list[int] = self._tokens[symbols].tolist()
        return tokens

    def _in_order(self) -> list[Record]:
        return sorted(self._records.values(), key=lambda record: record.due_s)


async def run_closed(plan: Plan, target: Target, words: Sequence[int], n_clients: int,
                     progress: Progress = lambda done, total: None) -> list[Record]:
    """The records of a run with `n_clients`, in the order in which requests were sent."""
    return await Load(plan, target, words, progress).closed(n_clients)


async def run_open(plan: Plan, target: Target, words: Sequence[int], time_scale: float = 1.0,
                   progress: Progress = lambda done, total: None) -> list[Record]:
    """The same at the times of the plan."""
    return await Load(plan, target, words, progress).open(time_scale)
