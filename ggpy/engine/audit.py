"""Whether what the cache holds is what computing it again gives, bit for bit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass

from ggpy.backends.base import PAGE_TOKENS, Backend, Scales, StepSequence
from ggpy.engine.kv_cache import KVCache, SequenceKV
from ggpy.engine.metrics import EngineMetrics
from ggpy.engine.request import Request

AUDIT_SALT = -1         # nothing of other requests is reused for an audit

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the cache and a second computation part ways."""

    position: int
    """The first of the page; or the token whose logits differ."""
    group: int | None
    """The KV group of the page; None: it is the logits of the next token that differ."""

    def __str__(self) -> str:
        if self.group is None:
            return f"the logits of the token at position {self.position}, which sees the cached ones"
        return f"the page of positions {self.position} and on in KV group {self.group}"


AuditParts = Generator[None, None, list[Difference] | None]


def audit(backend: Backend, cache: KVCache, kv: SequenceKV, tokens: Sequence[int]) -> list[Difference] | None:
    """As `audit_parts`, all between two steps."""
    parts = audit_parts(backend, cache, kv, tokens, lambda: backend.max_tokens)
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: list[Difference] | None = end.value
            return result


def audit_parts(backend: Backend, cache: KVCache, kv: SequenceKV, tokens: Sequence[int],
                n_rows: Callable[[], int], adapters: Scales = ()) -> AuditParts:
    """Compute what `kv` has computed or reused of `tokens` again, elsewhere, and compare; with its `adapters`.

    Full pages are compared byte by byte; the last, partly filled one by the logits of the token after it, which must be
    among `tokens`. Returns the differences; None if there are not enough free or idle pages. It gives way to a step
    wherever it yields, each time after at most `n_rows()` rows; `kv` must stay as it is meanwhile.
    """
    n = kv.num_computed
    again = cache.open((), AUDIT_SALT)
    try:
        if not cache.reserve(kv, n + 1):
            return None
        differences: list[Difference] = []
        start = 0
        while start < n:
            end = min(n, start + n_rows())
            if not cache.reserve(again, end):
                return None
            backend.forward([StepSequence(tokens[start:end], start, again.page_table, 0, adapters=adapters)])
            cache.advance(again, tokens, end)
            differences += _differing_pages(backend, kv, again, range(start // PAGE_TOKENS, end // PAGE_TOKENS))
            start = end
            yield
        if not cache.reserve(again, n + 1):
            return None
        cached, computed = (backend.forward([StepSequence(tokens[n : n + 1], n, table, 1, adapters=adapters)])[0].copy()
                            for table in (kv.page_table, again.page_table))
        if cached.tobytes() != computed.tobytes():
            differences.append(Difference(n, None))
        return differences
    finally:
        cache.discard(again)


def audit_stored(backend: Backend, cache: KVCache) -> dict[tuple[int, ...], list[Difference]]:
    """Audit every stored prefix: its tokens, and the differences. Those that there are no pages for are left out."""
    audited = {}
    for salt, tokens in [*cache.paths()]:
        prompt = [*tokens, 0]           # any token has logits
        kv = cache.open(prompt, salt)
        differences = audit(backend, cache, kv, prompt)
        cache.close(kv)
        if differences is not None:
            audited[tuple(tokens[: kv.num_cached])] = differences
    return audited


class Auditor:
    """Audits one in `every` hits of requests while others run, one audit at a time, a part in each step; 0: none.

    What differs is a bug: it is logged as an error and counted. Audits hold pages beside the requests, which come
    first: `release` gives them back.
    """

    def __init__(self, backend: Backend, cache: KVCache, metrics: EngineMetrics, every: int,
                 n_rows: Callable[[], int]) -> None:
        self._backend, self._cache, self._metrics, self._n_rows = backend, cache, metrics, n_rows
        self._every = every
        self._n_hits = 0                        # since the last one that was audited
        self._parts: AuditParts | None = None   # of the audit that has begun
        self._kv: SequenceKV | None = None      # what is audited

    @property
    def is_busy(self) -> bool:
        return self._parts is not None

    def admitted(self, request: Request) -> None:
        """Begin an audit of what `request` has found in the cache, if it is time for one."""
        self._n_hits += bool(request.num_cached)
        if not (self._every and request.num_cached) or self._n_hits < self._every or self.is_busy:
            return
        # pages of its own: the request may end before the audit does
        tokens = request.tokens[: request.num_cached + 1]
        self._kv = self._cache.open(tokens, request.salt)
        self._parts = audit_parts(self._backend, self._cache, self._kv, tokens, self._n_rows,
                                  request.adapters or ())
        self._n_hits = 0

    def go_on(self) -> None:
        """Do the next part of the audit that has begun, between two steps."""
        if self._parts is None:
            return
        try:
            next(self._parts)
        except StopIteration as end:
            self._note(end.value)
            self.release()

    def release(self) -> bool:
        """Give back the pages of an audit that has begun, which has no result then; False if there is none."""
        parts, kv, self._parts, self._kv = self._parts, self._kv, None, None
        if parts is None or kv is None:
            return False
        parts.close()
        self._cache.close(kv)
        return True

    def _note(self, differences: list[Difference] | None) -> None:
        if differences is None:
            return
        self._metrics.audited(len(differences))
        for difference in differences:
            logger.error("the cache holds what computing it again does not give: %s; this is a bug of ggpy, please "
                         "report it", difference)


def _differing_pages(backend: Backend, kv: SequenceKV, again: SequenceKV, columns: range) -> list[Difference]:
    return [Difference(column * PAGE_TOKENS, group)
            for group in range(len(backend.kv_groups))
            for column in range(max(columns.start, kv.first_held[group]), columns.stop)
            if backend.read_page(group, kv.page_table[group, column])
            != backend.read_page(group, again.page_table[group, column])]
