"""Whether what the cache holds is what computing it again gives, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ggpy.backends.base import PAGE_TOKENS, Backend, StepSequence
from ggpy.engine.radix import KVCache, SequenceKV

AUDIT_SALT = -1         # nothing of other requests is reused for an audit


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


def audit(backend: Backend, cache: KVCache, kv: SequenceKV, tokens: Sequence[int]) -> list[Difference] | None:
    """Compute what `kv` has computed or reused of `tokens` again, elsewhere, and compare.

    Full pages are compared byte by byte; the last, partly filled one by the logits of the token after it, which must be
    among `tokens`. Returns the differences; None if there are not enough free or idle pages. Between two steps only.
    """
    n = kv.num_computed
    again = cache.open((), AUDIT_SALT)
    try:
        if not (cache.reserve(kv, n + 1) and _compute(backend, cache, again, tokens[:n])
                and cache.reserve(again, n + 1)):
            return None
        differences = [
            Difference(column * PAGE_TOKENS, group)
            for group in range(len(backend.kv_groups))
            for column in range(kv.first_held[group], n // PAGE_TOKENS)
            if backend.read_page(group, kv.page_table[group, column])
            != backend.read_page(group, again.page_table[group, column])
        ]
        cached, computed = (backend.forward([StepSequence(tokens[n : n + 1], n, table, 1)])[0].copy()
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


def _compute(backend: Backend, cache: KVCache, kv: SequenceKV, tokens: Sequence[int]) -> bool:
    """Compute `tokens` from the first on; False if there are no pages for them."""
    for start in range(0, len(tokens), backend.max_tokens):
        end = min(start + backend.max_tokens, len(tokens))
        if not cache.reserve(kv, end):
            return False
        backend.forward([StepSequence(tokens[start:end], start, kv.page_table, 0)])
        cache.advance(kv, tokens, end)
    return True
