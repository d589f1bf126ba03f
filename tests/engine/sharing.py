"""Requests that share much, in pools too small for them, and an audit of whatever they reuse."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

from ggpy.backends.base import PAGE_TOKENS, Backend, StepSequence
from ggpy.engine.audit import Difference, audit
from ggpy.engine.kv_cache import KVCache, SequenceKV

N_LIVE = 5              # sequences at a time
MAX_TOKENS = 6 * PAGE_TOKENS


@dataclass(eq=False)
class Live:
    """A sequence and all the tokens that it is to compute."""

    kv: SequenceKV
    tokens: list[int]


@dataclass
class Sharing:
    """Several sequences at a time, which begin like one of three system prompts or one of the last requests."""

    backend: Backend
    n_vocab: int
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    """requests; audits of one; hits: requests that reused something; preempted; and causes of misses."""
    differences: list[Difference] = field(default_factory=list)

    def run(self, n_requests: int) -> None:
        """Serve `n_requests`, each audited when it is opened and, now and then, while it runs."""
        self._random = random.Random(self.seed)
        self._cache = KVCache([group.window for group in self.backend.kv_groups], self.backend.n_pages,
                              self.backend.table_pages, self.backend.copy_page)
        self._live: list[Live] = []
        self._past = [self._words(self._random.randrange(40, 120)) for _ in range(3)]
        while self.counts["requests"] < n_requests or self._live:
            while self.counts["requests"] < n_requests and len(self._live) < N_LIVE:
                self._open(self._prompt())
                self.counts["requests"] += 1
            self._step()

    def _words(self, n: int) -> list[int]:
        return [self._random.randrange(self.n_vocab) for _ in range(n)]

    def _prompt(self) -> list[int]:
        past = self._random.choice(self._past)
        kept = past if self._random.random() < 0.5 else past[: self._random.randrange(len(past) + 1)]
        tokens = [*kept, *self._words(self._random.randrange(1, 60))][:MAX_TOKENS]
        if len(self._past) == 12:
            del self._past[self._random.randrange(3, 12)]
        self._past.append(tokens)
        return tokens

    def _open(self, tokens: list[int]) -> None:
        live = Live(self._cache.open(tokens, salt=self._random.randrange(4) // 3), tokens)
        self.counts["hits"] += live.kv.num_cached > 0
        self.counts[live.kv.miss.cause] += 1
        self._live.append(live)
        self._audit(live)

    def _audit(self, live: Live) -> None:
        if 0 < live.kv.num_computed < len(live.tokens):
            found = audit(self.backend, self._cache, live.kv, live.tokens)
            self.counts["audits"] += found is not None
            self.differences += found or []

    def _step(self) -> None:
        """Compute the next tokens of some sequences together; those that are ready are closed, few of them failed."""
        budget = self.backend.max_tokens
        sequences: list[StepSequence] = []
        computed: list[tuple[Live, int]] = []
        for live in self._random.sample(self._live, len(self._live)):
            if live not in self._live:
                continue                    # it had to go for another one
            self._cache.catch_up(live.kv, live.tokens)
            start = live.kv.num_computed
            end = min(len(live.tokens), start + self._random.randrange(1, 2 * PAGE_TOKENS), start + budget)
            if end > start and self._reserve(live, end, [other for other, _ in computed]):
                sequences.append(StepSequence(live.tokens[start:end], start, live.kv.page_table, 0))
                computed.append((live, end))
                budget -= end - start
        self.backend.forward(sequences)
        for live, end in computed:
            self._cache.advance(live.kv, live.tokens, end)
            if end == len(live.tokens):
                (self._cache.discard if self._random.random() < 0.02 else self._cache.close)(live.kv)
                self._live.remove(live)
            elif self._random.random() < 0.1:
                self._audit(live)

    def _reserve(self, live: Live, end: int, in_step: list[Live]) -> bool:
        """Pages for a sequence, if need be those of others that are not in the step, which end early."""
        while not self._cache.reserve(live.kv, end):
            others = [other for other in self._live if other is not live and other not in in_step]
            if not others:
                return False
            victim = self._random.choice(others)
            self._cache.close(victim.kv)
            self._live.remove(victim)
            self.counts["preempted"] += 1
        return True
