"""Which tokens the next forward pass computes, and who holds pages."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ggpy.backends.base import PAGE_TOKENS
from ggpy.engine.kv_cache import KVCache
from ggpy.engine.pace import Pace
from ggpy.engine.pages import pages_for
from ggpy.engine.request import Request
from ggpy.errors import QueueFullError

AGEING_ROWS_S = 500.0       # a prompt that has waited a second counts as if it were so much shorter
LEAST_READ = 8              # rows of prompts in a step, however many generate


@dataclass(slots=True)
class Chunk:
    """The next `length` pending tokens of a request, as it is now, then `drafts` to verify."""

    request: Request
    length: int
    drafts: tuple[int, ...] = ()
    is_answer: bool = False         # the next token of an answer, as opposed to a part of a prompt

    n_rows: int = field(init=False)
    n_outputs: int = field(init=False)
    """Rows with logits: those of the last token and of the drafts, unless tokens are left to read."""

    def __post_init__(self) -> None:
        self.n_rows = self.length + len(self.drafts)
        self.n_outputs = 1 + len(self.drafts) if self.length == self.request.num_pending else 0


class Batch:
    """The chunks of a step, within its rows and output rows."""

    def __init__(self, rows: int, outputs: int) -> None:
        self.rows, self.outputs = rows, outputs         # that are left
        self._chunks: dict[int, Chunk] = {}

    @property
    def chunks(self) -> list[Chunk]:
        return list(self._chunks.values())

    def __len__(self) -> int:
        return len(self._chunks)

    def add(self, chunk: Chunk) -> None:
        self._chunks[chunk.request.id] = chunk
        self._count(chunk, -1)

    def has(self, request: Request) -> bool:
        return request.id in self._chunks

    def drop(self, request: Request) -> None:
        """Take the chunk of a request out, if it has one."""
        chunk = self._chunks.pop(request.id, None)
        if chunk is not None:
            self._count(chunk, 1)

    def _count(self, chunk: Chunk, sign: int) -> None:
        self.rows += sign * chunk.n_rows
        self.outputs += sign * chunk.n_outputs


def rank(request: Request) -> tuple[int, int]:
    """Who keeps seat and pages when they are short: higher priority first, then the oldest."""
    return -request.priority, request.id


class Scheduler:
    """One loop, one budget of rows a step. `waiting` requests hold no pages; `running` ones have a seat.

    In a step, requests that generate come first, with their drafts, then prompts share what is left: the one with least
    to read first, but waiting counts too, and priority before both. Pages that are short go to the requests that rank
    first; others give way, and resume by computing what the cache has lost by then. The request that ranks first always
    gets on, since every one fits the pool when it is alone (EngineCore checks it): so all finish.
    """

    def __init__(self, cache: KVCache, *, max_batch_tokens: int, max_outputs: int, max_running: int,
                 max_queue: int, step_ms: float = 0, release: Callable[[], bool] = lambda: False) -> None:
        """`release` gives back pages that something less urgent than any request holds; False: there is none."""
        self.cache = cache
        self._release = release
        self.pace = Pace(step_ms)
        self.max_batch_tokens = max_batch_tokens
        self.max_outputs = max_outputs
        self.max_running = min(max_running, max_outputs, max_batch_tokens)
        self.max_queue = max_queue
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.admitted: list[Request] = []       # by the last call of schedule, for the first time
        self.num_preempted = 0          # ever
        self._has_new = False           # a request came since the last call of schedule

    def add(self, request: Request) -> None:
        """Queue a request. Raises QueueFullError."""
        if len(self.waiting) >= self.max_queue:
            raise QueueFullError(f"{len(self.waiting):,} requests are waiting already, the most that may; "
                                 "ask again later")
        request.state = "waiting"
        self.waiting.append(request)
        self._has_new = True

    @property
    def generating(self) -> list[Request]:
        return [request for request in self.running if request.is_generating]

    @property
    def drafting(self) -> list[Request]:
        """Those that generate, if they may draft: unless a prompt is read, or one that has come may be, with the rows.
        """
        generating = self.generating
        return generating if len(generating) == len(self.running) and not self._has_new else []

    def schedule(self, now_s: float) -> list[Chunk]:
        """Pick the tokens of the next forward pass; reading a prompt and generating are both pending tokens."""
        batch = Batch(self.max_batch_tokens, self.max_outputs)
        self.admitted, self._has_new = [], False
        num_running = len(self.running)
        self._continue_answers(batch)
        if len(self.running) == num_running:        # else memory is short: admit nobody this step
            self._admit_waiting(batch, now_s)
        # prompts go on, if slowly, however many generate
        n_generating = self.max_batch_tokens - batch.rows
        n_rows = self.pace.rows(self.max_batch_tokens, n_generating, n_reading=len(self.running) - len(batch))
        batch.rows = min(batch.rows, max(LEAST_READ, n_rows - n_generating))
        self._read_prompts(batch, now_s)
        return batch.chunks

    def make_room(self, fits: Callable[[], bool]) -> bool:
        """Preempt those who rank last until `fits` or nobody runs; returns what it said last."""
        while not fits():
            if self._release():
                continue
            if not self.running:
                return False
            self._preempt(max(self.running, key=rank))
        return True

    def shift(self, request: Request) -> None:
        """Take out what a request's context shift lets go; what follows that is read again."""
        assert request.context_shift is not None, "it ends when its context is full"
        num_before = len(request.tokens)
        request.tokens = request.context_shift.shifted(request.tokens)
        request.num_discarded += num_before - len(request.tokens)
        self._give_up_pages(request)
        request.keeps = ()              # they count tokens of the prompt, and its beginning is another one now
        request.kv = self.cache.open(request.tokens, request.salt)
        request.num_computed = request.kv.num_computed

    def remove(self, request: Request) -> None:
        """Forget a request, whatever its state, and give up its pages; a second time nothing happens."""
        for requests in (self.running, self.waiting):
            if request in requests:
                requests.remove(request)
        self._give_up_pages(request)
        request.state = "finished"

    def _continue_answers(self, batch: Batch) -> None:
        """A row for each request that generates, and rows for the drafts of those who have any, while some are left."""
        generating = sorted(self.generating, key=rank)
        batch.outputs -= len(generating)
        spare = batch.rows - len(generating)
        for request in generating:
            batch.outputs += 1
            if request.state != "running":      # it gave way meanwhile
                continue
            drafts = request.draft_tokens[: max(0, min(spare, batch.outputs - 1))]
            assert request.kv is not None, "who runs has pages"
            if drafts and not self.cache.reserve(request.kv, request.num_computed + 1 + len(drafts)):
                drafts = ()                     # nobody gives way to guesses
            if self._reserve_pages(request, 1 + len(drafts), batch):
                batch.add(Chunk(request, 1, drafts, is_answer=True))
                spare -= len(drafts)

    def _read_prompts(self, batch: Batch, now_s: float) -> None:
        """Chunks of prompts: of higher priority first, then the shortest rest; a long wait makes up for length."""
        def rest(request: Request) -> tuple[int, float, int]:
            waited = AGEING_ROWS_S * (now_s - request.added_s)
            return -request.priority, request.num_pending - waited, request.id

        for request in sorted((r for r in self.running if not batch.has(r)), key=rest):
            if batch.rows <= 0 or batch.outputs <= 0:
                break
            if request.state != "running":      # it gave way meanwhile
                continue
            self._catch_up(request)
            length = min(request.num_pending, batch.rows)
            if self._reserve_pages(request, length, batch):
                batch.add(Chunk(request, length))

    def _catch_up(self, request: Request) -> None:
        """Skip what others have computed of the prompt since it was looked up."""
        assert request.kv is not None, "who runs has pages"
        if self.cache.catch_up(request.kv, request.tokens):
            request.num_computed = request.kv.num_computed
            if request.num_preempted == 0:
                request.num_cached, request.miss = request.kv.num_cached, request.kv.miss

    def _admit_waiting(self, batch: Batch, now_s: float) -> None:
        """Give seats to those who wait, in order of rank, while there are seats and pages for all their tokens."""
        self.waiting.sort(key=rank)
        for request in list(self.waiting):
            if self._is_being_read(request):        # soon in the cache: others may go before it
                continue
            if not self._admit(request, batch, now_s):
                break

    def _admit(self, request: Request, batch: Batch, now_s: float) -> bool:
        """Give `request` a seat if there is one, and pages for all of its tokens; lower priorities give way."""
        while len(self.running) >= self.max_running or not self._fits_whole(request):
            if len(self.running) < self.max_running and self._release():
                continue
            victim = max(self.running, key=rank, default=None)
            if victim is None:
                break               # alone it fits
            if victim.priority >= request.priority:
                return False
            self._preempt(victim, batch)
        kv = request.kv = self.cache.open(request.tokens, request.salt)
        request.num_computed = kv.num_computed
        if request.num_cached is None:
            request.num_cached, request.miss, request.admitted_s = kv.num_cached, kv.miss, now_s
            self.admitted.append(request)
        self.waiting.remove(request)
        self.running.append(request)
        request.state = "running"
        return True

    def _fits_whole(self, request: Request) -> bool:
        """Whether the pages that nobody needs suffice for all tokens of `request`, beside what those who run lack."""
        cache = self.cache
        n_to_share = 0
        for group, (n_free, n_idle) in enumerate(zip(cache.n_free, cache.n_idle, strict=True)):
            lacking = sum(max(0, self._pages_needed(r, group) - r.kv.n_pages + r.kv.first_held[group])
                          for r in self.running if r.kv is not None)
            n_missing = lacking + self._pages_needed(request, group) - n_free - n_idle
            if n_missing > 0 and group > 0:
                return False
            if group == 0:
                n_to_share = n_missing
        return n_to_share <= 0 or self._shares(request, n_to_share)

    def _shares(self, request: Request, n_pages: int) -> bool:
        """Whether running requests hold the first `n_pages` pages of `request`, so that it needs none for these.

        This is asked in each step while it waits, so it must not take as long as looking up the whole prompt.
        """
        n_tokens = n_pages * PAGE_TOKENS
        if n_pages > self.cache.n_held[0] or n_tokens >= len(request.tokens):
            return False
        if not self.cache.is_held(request.key(n_tokens), request.salt):
            return False
        # where there are windows, what is held may be of no use
        return len(self.cache.windows) == 1 or (
            self.cache.find(request.tokens, request.salt).num_held_pages >= n_pages)

    def _pages_needed(self, request: Request, group: int) -> int:
        """Pages of a KV group that `request` needs at a time until all of its tokens are computed."""
        n_pages, window = pages_for(len(request.tokens)), self.cache.windows[group]
        if group == 0 or window is None:
            return n_pages
        return min(n_pages, pages_for(window + min(request.num_pending, self.max_batch_tokens)) + 1)

    def _is_being_read(self, request: Request) -> bool:
        """Whether a running request computes the very tokens now that `request` needs next.

        Reading them twice would cost more than the wait: so many requests with one long beginning read it once. But
        nobody waits for a lower priority, which may itself be waiting.
        """
        return any(
            not reader.is_generating and reader.salt == request.salt and reader.priority >= request.priority and
            shares_next_page(reader, request)
            for reader in self.running)

    def _reserve_pages(self, request: Request, n_rows: int, batch: Batch) -> bool:
        """Pages for the next rows of `request`; who ranks after it gives way. False if it had to go itself."""
        assert request.kv is not None, "who runs has pages"
        while not self.cache.reserve(request.kv, request.num_computed + n_rows):
            if self._release():
                continue
            victim = max(self.running, key=rank)
            self._preempt(victim, batch)
            if victim is request:
                return False
        return True

    def _preempt(self, request: Request, batch: Batch | None = None) -> None:
        """Take seat and pages of a running request; it resumes by computing what the cache has lost by then."""
        if batch is not None:
            batch.drop(request)
        self.running.remove(request)
        self._give_up_pages(request)
        request.state = "waiting"
        request.num_preempted += 1
        self.num_preempted += 1
        self.waiting.append(request)

    def _give_up_pages(self, request: Request) -> None:
        if request.kv is not None:
            if request.error is None:
                for n_tokens, keep_s in request.keeps:
                    self.cache.keep(request.kv, n_tokens, time.monotonic() + keep_s)
                self.cache.close(request.kv)
            else:                           # what a failed computation left is of no use to anyone
                self.cache.discard(request.kv)
        request.kv, request.num_computed, request.draft_tokens = None, 0, ()


def shares_next_page(reader: Request, request: Request) -> bool:
    """Whether both prompts go on alike behind what `reader` has computed, for a page or to the end of one of them."""
    stop = min(reader.num_computed + PAGE_TOKENS, len(reader.prompt_tokens), len(request.prompt_tokens) - 1)
    if stop <= reader.num_computed:
        return False
    end, mine, other = 8 * stop, request.prompt_bytes, reader.prompt_bytes
    return mine[end - 8 : end] == other[end - 8 : end] and mine[:end] == other[:end]
