"""Which tokens the next forward pass computes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from ggpy.engine.kv import PagePool, pages_for
from ggpy.engine.pace import ROW_MULTIPLE, Pace
from ggpy.engine.prefix_cache import PrefixCache
from ggpy.engine.request import Request


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next `length` pending tokens of a request."""

    request: Request
    length: int
    n_outputs: int          # 1 if these are all that is pending, so that a token can be sampled; else 0


def rank(request: Request) -> tuple[bool, int]:
    """Order of service: those that generate before those that read, the oldest first."""
    return request.num_pending > 1, request.id


class Scheduler:
    """Decides what runs and who holds pages. `waiting` requests hold none; `running` ones hold all that they need.

    Those of a request that ends or gives way are kept in the cache until others need them.

    Every request must fit the pool when it is alone; `EngineCore` checks it.
    """

    def __init__(self, pool: PagePool, *, max_batch_tokens: int, max_running: int, step_ms: float = 0) -> None:
        self.pool = pool
        self.pace = Pace(step_ms)
        self.cache = PrefixCache(pool)
        self.max_batch_tokens = max_batch_tokens
        self.max_running = max_running
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []

    def add(self, request: Request) -> None:
        request.state = "waiting"
        self.waiting.append(request)

    def schedule(self) -> list[Chunk]:
        """Pick the tokens of the next forward pass; reading a prompt and generating are both pending tokens."""
        budget, batch = self.max_batch_tokens, []
        num_running = len(self.running)
        self.running.sort(key=rank)
        # prompts go on, if slowly, however many generate
        budget_to_read = max(ROW_MULTIPLE, self.pace.rows(budget) - sum(r.num_pending == 1 for r in self.running))

        for request in self.running:        # preemption shortens the list behind the request that needs pages
            length = min(request.num_pending, budget)
            if request.num_pending > 1:
                length = min(length, budget_to_read)
            if length and self._reserve_pages(request):
                batch.append(Chunk(request, length, int(length == request.num_pending)))
                budget -= length
                if request.num_pending > 1:
                    budget_to_read -= length

        if len(self.running) < num_running:         # memory is short: admit nobody this step
            return batch

        # admitting only within the budget also keeps all that generate within it
        budget = min(budget, budget_to_read)
        while self.waiting and budget and len(self.running) < self.max_running and self._admit():
            request = self.running[-1]
            length = min(request.num_pending, budget)
            batch.append(Chunk(request, length, int(length == request.num_pending)))
            budget -= length
        return batch

    def make_room(self, n_pages: int) -> None:
        """Let `n_pages` pages be free, preempting from the back where the cache's are too few."""
        self.running.sort(key=rank)
        while not self.cache.reclaim(n_pages) and self.running:
            self._preempt(self.running.pop())

    def remove(self, request: Request) -> None:
        """Forget a request, whatever its state, and give up its pages; a second time nothing happens."""
        if request in self.running:
            self.running.remove(request)
        elif request in self.waiting:
            self.waiting.remove(request)
        self._give_up_pages(request)
        request.state = "finished"

    def _admit(self) -> bool:
        """Let the first waiting request run if there are pages for all of its tokens."""
        request = self.waiting[0]
        request.page_table, request.num_computed = self.cache.adopt(request.tokens)
        if not self._fits(request):
            self._give_up_pages(request)
            return False
        if request.num_cached is None:
            request.num_cached = request.num_computed
        self._extend(request)
        self.running.append(self.waiting.popleft())
        request.state = "running"
        return True

    def _reserve_pages(self, request: Request) -> bool:
        """Give `request` pages for all its tokens, preempting from the back; False if it had to go itself."""
        while not self._fits(request):
            victim = self.running.pop()
            self._preempt(victim)
            if victim is request:
                return False
        self._extend(request)
        return True

    def _preempt(self, request: Request) -> None:
        """Take the pages of a request that no longer runs; it resumes by computing what the cache has lost by then."""
        self._give_up_pages(request)
        request.state = "waiting"
        self.waiting.appendleft(request)

    def _num_missing(self, request: Request) -> int:
        return pages_for(len(request.tokens)) - len(request.page_table)

    def _fits(self, request: Request) -> bool:
        return self.cache.reclaim(self._num_missing(request))

    def _extend(self, request: Request) -> None:
        missing = self._num_missing(request)
        if missing > 0:
            after = int(request.page_table[-1]) if len(request.page_table) else None
            request.page_table = np.concatenate([request.page_table, self.pool.allocate(missing, after)])

    def _give_up_pages(self, request: Request) -> None:
        if request.error is None:
            self.cache.keep(request.tokens[: request.num_computed], request.page_table)
        else:                               # what a failed computation left is of no use to anyone
            self.pool.release(request.page_table)
        request.page_table = np.empty(0, np.int32)
        request.num_computed = 0
