"""A backend and a tokenizer without a model, so that the engine's own behaviour shows."""

import zlib
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.backends.base import PAGE_TOKENS, KVGroup, KVIdentity, StepSequence
from ggpy.engine.async_client import AsyncClient
from ggpy.engine.config import EngineConfig
from ggpy.engine.core import EngineCore
from ggpy.engine.pages import pages_for
from ggpy.engine.process_client import ProcessClient
from ggpy.engine.request import Event, Request
from ggpy.engine.speculation import Speculator
from ggpy.engine.thread_client import ThreadClient
from ggpy.text import Tokenizer

T = TypeVar("T")
Start = Callable[..., Awaitable[AsyncClient]]
N_VOCAB = 61
END = 60            # the token that ends an answer


def hashed_logits(prefix: NDArray[np.int64]) -> NDArray[np.float32]:
    """Logits (N_VOCAB,) that depend on every token of `prefix`."""
    return np.random.default_rng(zlib.crc32(prefix.tobytes())).normal(0, 3, N_VOCAB).astype(np.float32)


def whole(parts: Generator[None, None, T]) -> T:
    """What `parts` returns in the end."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            return cast(T, end.value)


class HashBackend:
    """Keeps tokens where a real backend keeps keys and values; logits are a hash of the prefix read through the pages.

    So a page that two sequences write to, or that is read before it is computed, changes somebody's tokens. Groups with
    a window keep the tokens too, and must have those that a window still sees.
    """

    def __init__(self, n_pages: int | tuple[int, ...], max_tokens: int = 16, max_outputs: int = 4,
                 windows: tuple[int | None, ...] = (None,), table_pages: int = 64) -> None:
        self.n_vocab, self.max_tokens, self.max_outputs = N_VOCAB, max_tokens, max_outputs
        self.kv_groups = tuple(KVGroup(window, ()) for window in windows)
        self.n_pages = n_pages if isinstance(n_pages, tuple) else (n_pages,) * len(windows)
        self.table_pages = table_pages
        self.n_embd, self.n_classes, self.is_encoder, self.team = 7, 2, False, None
        self.pages = [np.full((n, PAGE_TOKENS), -1, np.int64) for n in self.n_pages]
        self.steps: list[list[StepSequence]] = []
        self.hidden_steps: list[list[StepSequence]] = []

    def forward(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        assert 0 < sum(len(s.tokens) for s in sequences) <= self.max_tokens
        assert sum(s.n_outputs for s in sequences) <= self.max_outputs
        self.steps.append(list(sequences))
        for s in sequences:
            for i, token in enumerate(s.tokens):
                column, slot = divmod(s.first_position + i, PAGE_TOKENS)
                for pages, table in zip(self.pages, s.page_table, strict=True):
                    pages[table[column], slot] = token
        rows = [hashed_logits(self.prefix(s, s.first_position + len(s.tokens) - i))
                for s in sequences for i in reversed(range(s.n_outputs))]
        return np.array(rows, np.float32).reshape(-1, N_VOCAB)

    def scores(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self.forward(sequences)[:, : self.n_classes]

    def hidden(self, sequences: Sequence[StepSequence]) -> NDArray[np.float32]:
        return self.forward(sequences)[:, : self.n_embd]

    def kv_identity(self) -> KVIdentity:
        return KVIdentity("hash", "hash", ("f32", "f32"))

    def prefix(self, s: StepSequence, n: int) -> NDArray[np.int64]:
        """The first n tokens of a sequence, as they lie in its pages."""
        n_columns = -(-n // PAGE_TOKENS)
        all_tokens = self.pages[0][s.page_table[0, :n_columns]].ravel()[:n]
        for group, pages, table in zip(self.kv_groups, self.pages, s.page_table, strict=True):
            first = 0 if group.window is None else max(0, n - group.window)
            seen = pages[table[first // PAGE_TOKENS : n_columns]].ravel()[first % PAGE_TOKENS :][: n - first]
            assert np.array_equal(seen, all_tokens[first:])
        return all_tokens

    def copy_page(self, group: int, source: int, target: int) -> None:
        self.pages[group][target] = self.pages[group][source]

    def page_bytes(self, group: int) -> int:
        return 8 * PAGE_TOKENS

    def read_page(self, group: int, page: int) -> bytes:
        return bytes(self.pages[group][page].tobytes())

    def write_page(self, group: int, page: int, data: bytes) -> None:
        self.pages[group][page] = np.frombuffer(data, np.int64)

    def close(self) -> None:
        pass


class LetterTokenizer:
    """Token i is the letter chr(65 + i); END is a control token without text."""

    n_vocab = N_VOCAB
    eog_ids = frozenset({END})
    suppress_tokens = ()

    def token_bytes(self, token_id: int, special: bool = True) -> bytes:
        if token_id == END:
            return b"<end>" if special else b""
        return chr(65 + token_id).encode()


class Driver:
    """An engine on a HashBackend, and the events of every request."""

    def __init__(self, n_pages: int | tuple[int, ...] = 8, n_ctx: int = 128, max_batch_tokens: int = 16,
                 max_running: int = 4, windows: tuple[int | None, ...] = (None,), max_queue: int = 1024,
                 speculator: Speculator | None = None, cache_audit: int = 0, **settings: Any) -> None:
        self.backend = HashBackend(n_pages, max_tokens=max_batch_tokens, max_outputs=max_running, windows=windows,
                                   table_pages=pages_for(n_ctx))
        config = EngineConfig(n_ctx=n_ctx, max_batch_tokens=max_batch_tokens, max_running=max_running,
                              max_queue=max_queue, cache_audit=cache_audit, **settings)
        self.core = EngineCore(self.backend, cast(Tokenizer, LetterTokenizer()), config, speculator)
        self.events: dict[int, list[Event]] = {}

    def add(self, request: Request) -> None:
        """Queue a request."""
        self.core.add(self.core.prepare(request))

    def step(self) -> list[Event]:
        """One step, after which every page is free, idle or held."""
        events = self.core.step()
        for event in events:
            self.events.setdefault(event.request_id, []).append(event)
        self.check_pages()
        return events

    def check_pages(self) -> None:
        """Each page is free, idle or held, and only running requests and audits hold any."""
        cache = self.core.cache
        for free, idle, held, n in zip(cache.n_free, cache.n_idle, cache.n_held, cache.n_pages, strict=True):
            assert free + idle + held == n
        if not (self.core.scheduler.running or self.core._auditor.is_busy):
            assert not any(cache.n_held)

    @property
    def n_available(self) -> int:
        """Pages of the first group that are free or that the cache would let go."""
        return self.core.cache.n_free[0] + self.core.cache.n_idle[0]

    def logits(self, tokens: Sequence[int], n_outputs: int) -> NDArray[np.float32]:
        """What the generator of EngineCore.logits returns in the end."""
        return whole(self.core.logits(tokens, n_outputs))

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
    """Builds an engine on a fake backend; arguments as of Driver."""
    return Driver


STARTS: dict[str, Start] = {"thread": ThreadClient.start, "process": ProcessClient.start}


@pytest.fixture(params=STARTS)
def start(request: pytest.FixtureRequest) -> Start:
    """Starts a client of each kind."""
    return STARTS[request.param]
