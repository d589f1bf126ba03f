"""What requests want kept in the cache is evicted last, for as long as they want it."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import pytest

from ggpy.engine.kv_cache import Miss
from tests.engine.page_store import PageStore

FULL: int | None = None


@pytest.fixture
def store() -> PageStore:
    """One group, ten pages."""
    return PageStore([FULL], [10])


def test_what_is_to_be_kept_goes_last(store: PageStore) -> None:
    """A prompt that somebody wants kept outlives one that was used after it; it goes if nothing else is left."""
    run_and_keep(store, range(96), math.inf)
    store.run(range(1000, 1096))
    store.run(range(2000, 2224))        # seven pages: all that is left but three
    assert store.cache.find([*range(96), 1]).num_cached == 96
    assert store.cache.find([*range(1000, 1096), 1]).miss == Miss("evicted", 0)
    store.run(range(3000, 3320))
    assert store.cache.find([*range(96), 1]).miss == Miss("evicted", 0)


def test_what_stands_behind_what_is_to_be_kept_goes_as_usual(store: PageStore) -> None:
    """Of three pages the first two are wanted for longer."""
    run_and_keep(store, range(96), math.inf, n_tokens=64)
    store.run(range(1000, 1096))
    store.run(range(2000, 2224))
    assert store.cache.find([*range(96), 1]).num_cached == 64


def test_what_was_to_be_kept_is_evicted_as_usual_when_its_time_is_over(store: PageStore) -> None:
    """In the order of last use, whether it is over before the pages are idle or later."""
    run_and_keep(store, range(96), time.monotonic() - 1)
    store.run(range(1000, 1096))
    store.run(range(2000, 2224))
    assert store.cache.find([*range(96), 1]).num_cached == 0
    assert store.cache.find([*range(1000, 1096), 1]).num_cached == 96


def test_what_was_to_be_kept_is_no_newer_when_its_time_is_over(
        store: PageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It passes while the pages are idle: they go before those that were used after them, the last one first."""
    now_s = 100.0
    monkeypatch.setattr("ggpy.engine.idle_pages.monotonic", lambda: now_s)
    run_and_keep(store, range(96), 160.0)
    store.run(range(1000, 1096))
    now_s = 159.0
    store.run(range(2000, 2160))        # five pages: four are free
    assert store.cache.find([*range(96), 1]).num_cached == 96
    assert store.cache.find([*range(1000, 1096), 1]).num_cached == 64
    now_s = 160.0
    store.run(range(3000, 3064))
    assert store.cache.find([*range(96), 1]).num_cached == 32
    assert store.cache.find([*range(1000, 1096), 1]).num_cached == 64


def test_a_page_is_kept_no_longer_than_what_it_follows(store: PageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of both is over when the first one becomes idle."""
    now_s = 100.0
    monkeypatch.setattr("ggpy.engine.idle_pages.monotonic", lambda: now_s)
    run_and_keep(store, range(64), 160.0)
    first = store.cache.open(range(33))
    now_s = 161.0
    store.cache.close(first)
    store.run(range(1000, 1288))        # nine pages
    assert sorted(tokens for _, tokens in store.cache.paths()) == [[*range(32)], [*range(1000, 1288)]]


def test_half_of_the_pages_at_most_are_kept(store: PageStore) -> None:
    """Somebody wants six of ten kept: the one that was used longest ago goes before what was used after it."""
    for start in (1000, 2000, 3000):
        run_and_keep(store, range(start, start + 64), math.inf)
    store.run(range(96))
    store.run(range(4000, 4064))        # of five pages four are free
    found = [store.cache.find([*range(start, start + 96), 1]).num_cached for start in (1000, 2000, 3000, 0, 4000)]
    assert found == [32, 64, 64, 96, 64]


def test_what_is_to_be_kept_stays_where_a_window_has_left_it() -> None:
    """The answer is long, and what a window of 40 sees of the prompt is needed for the next one."""
    store = PageStore([FULL, 40], [20, 8])
    run_and_keep(store, range(160), math.inf, n_tokens=64)
    for start in (1000, 2000, 3000):
        store.run(range(start, start + 96))
    assert store.cache.find([*range(64), 1]).num_cached == 64


def run_and_keep(store: PageStore, tokens: Sequence[int], until_s: float, n_tokens: int | None = None) -> None:
    """A request that wants its first `n_tokens` kept, or all."""
    kv = store.cache.open(tokens)
    assert store.compute(kv, tokens)
    store.cache.keep(kv, len(tokens) if n_tokens is None else n_tokens, until_s)
    store.cache.close(kv)
