"""A backend and a tokenizer without a model, so that the engine's own behaviour shows."""

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, KVGroup, KVIdentity, StepSequence
from ggpy.engine.config import EngineConfig
from ggpy.engine.core import EngineCore
from ggpy.engine.request import Event, Request
from ggpy.text import Tokenizer

N_VOCAB = 61
END = 60            # the token that ends an answer


def hashed_logits(prefix: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits (N_VOCAB,) that depend on every token of `prefix`."""
    return np.random.default_rng(zlib.crc32(prefix.tobytes())).normal(0, 3, N_VOCAB).astype(np.float32)


class HashBackend:
    """Keeps tokens where a real backend keeps keys and values; logits are a hash of the prefix read through the pages.

    So a page that two sequences write to, or that is read before it is computed, changes somebody's tokens.
    """

    def __init__(self, n_pages: int, max_tokens: int = 16, max_outputs: int = 4) -> None:
        self.n_vocab, self.max_tokens, self.max_outputs = N_VOCAB, max_tokens, max_outputs
        self.kv_groups: tuple[KVGroup, ...] = (KVGroup(None, (0,)),)
        self.n_pages: tuple[int, ...] = (n_pages,)
        self.table_pages = n_pages
        self.n_embd, self.team = 7, None
        self.pages = np.full((n_pages, PAGE_TOKENS), -1, np.int64)
        self.steps: list[list[StepSequence]] = []

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        assert 0 < sum(len(s.tokens) for s in sequences) <= self.max_tokens
        assert sum(s.n_outputs for s in sequences) <= self.max_outputs
        self.steps.append(list(sequences))
        for s in sequences:
            for i, token in enumerate(s.tokens):
                page, slot = divmod(s.first_position + i, PAGE_TOKENS)
                self.pages[s.page_table[0, page], slot] = token
        rows = [hashed_logits(self.pages[s.page_table[0]].ravel()[: s.first_position + len(s.tokens) - i])
                for s in sequences for i in reversed(range(s.n_outputs))]
        return np.array(rows, np.float32).reshape(-1, N_VOCAB)

    def hidden(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self.forward(sequences)[:, : self.n_embd]

    def kv_identity(self) -> KVIdentity:
        return KVIdentity("hash", "hash", ("f32", "f32"))

    def copy_page(self, group: int, source: int, target: int) -> None:
        self.pages[target] = self.pages[source]

    def page_bytes(self, group: int) -> int:
        return int(self.pages[0].nbytes)

    def read_page(self, group: int, page: int) -> bytes:
        return bytes(self.pages[page].tobytes())

    def write_page(self, group: int, page: int, data: bytes) -> None:
        self.pages[page] = np.frombuffer(data, np.int64)

    def close(self) -> None:
        pass


class LetterTokenizer:
    """Token i is the letter chr(65 + i); END is a control token without text."""

    n_vocab = N_VOCAB
    eog_ids = frozenset({END})
    suppress_tokens = ()

    def token_bytes(self, token_id: int, special: bool = True) -> bytes:
        return b"" if token_id == END else chr(65 + token_id).encode()


class Driver:
    """An engine on a HashBackend, and the events of every request."""

    def __init__(self, n_pages: int = 8, n_ctx: int = 128, max_batch_tokens: int = 16, max_running: int = 4) -> None:
        self.backend = HashBackend(n_pages, max_tokens=max_batch_tokens, max_outputs=max_running)
        config = EngineConfig(n_ctx=n_ctx, max_batch_tokens=max_batch_tokens, max_running=max_running)
        self.core = EngineCore(self.backend, cast(Tokenizer, LetterTokenizer()), config)
        self.events: dict[int, list[Event]] = {}

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.core.add(self.core.prepare(request))

    def step(self) -> list[Event]:
        """One step, after which each page is free or held by those that say so: running requests and the cache."""
        events = self.core.step()
        for event in events:
            self.events.setdefault(event.request_id, []).append(event)
        self.check_pages()
        return events

    def check_pages(self) -> None:
        """Each page is free, or held by as many as say so."""
        pool, scheduler = self.core.pool, self.core.scheduler
        assert pool.n_free + pool.n_held == pool.n_pages
        tables = [*(request.page_table for request in scheduler.running),
                  *(kept.pages for kept in scheduler.cache.kept)]
        holders = np.bincount(np.concatenate([*tables, np.empty(0, np.int32)]), minlength=pool.n_pages)
        assert np.array_equal(holders, pool.all_holders())

    @property
    def n_available(self) -> int:
        """Pages that are free or that the cache would let go."""
        cached = [kept.pages for kept in self.core.scheduler.cache.kept]
        pages, counts = np.unique(np.concatenate([*cached, np.empty(0, np.int32)]), return_counts=True)
        return self.core.pool.n_free + int(np.count_nonzero(self.core.pool.holders(pages) == counts))

    def run(self, *requests: Request) -> None:
        """Add `requests` and step until nothing is left to do."""
        for request in requests:
            self.add(request)
        for _ in self.steps_left():
            pass

    def steps_left(self, limit: int = 20_000) -> Iterator[list[Event]]:
        """Steps until the engine has no work; fails where it makes no progress."""
        for _ in range(limit):
            if not self.core.has_work:
                return
            yield self.step()
        pytest.fail(f"still at work after {limit} steps")

    def text(self, request: Request) -> str:
        return "".join(event.text for event in self.events.get(request.id, []))


@pytest.fixture(scope="session")
def make_driver() -> Callable[..., Driver]:
    """Builds an engine on a fake backend: n_pages, n_ctx, max_batch_tokens, max_running."""
    return Driver
