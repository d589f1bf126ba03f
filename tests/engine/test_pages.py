"""Pages of a pool are handed out in runs and never twice."""

from __future__ import annotations

import pytest

from ggpy.backends.base import KVGroup
from ggpy.engine.pages import PagePool, pages_for, pool_pages


@pytest.mark.parametrize(("n_tokens", "n_pages"), [(0, 0), (1, 1), (32, 1), (33, 2)])
def test_tokens_fill_pages_of_32(n_tokens: int, n_pages: int) -> None:
    """A page that is begun counts."""
    assert pages_for(n_tokens) == n_pages


@pytest.mark.parametrize(("pool_tokens", "max_batch_tokens", "expected"), [
    (8192, 512, (256, 128, 256)),       # half of it; the window of 8000 tokens needs all
    (2048, 512, (64, 50, 64)),          # the window of 1024 and a step of 512 take 48 pages, and one that both begin in
    (1024, 512, (32, 32, 32)),
])
def test_windows_take_fewer_pages(pool_tokens: int, max_batch_tokens: int, expected: tuple[int, ...]) -> None:
    """Never more than layers that see all, never fewer than one request needs."""
    groups = [KVGroup(None, (0,)), KVGroup(1024 + 32, (1,)), KVGroup(8000, (2,))]
    assert pool_pages(groups, pool_tokens, max_batch_tokens) == expected


def test_the_first_group_is_whole_even_if_it_is_a_window() -> None:
    """A model may have no layer that sees everything."""
    assert pool_pages([KVGroup(64, ()), KVGroup(32, ())], 1024, 16) == (32, 16)


def test_pages_follow_the_ones_a_sequence_has() -> None:
    """Attention reads adjacent pages faster."""
    pool = PagePool(200)
    first = pool.allocate(3)
    other = pool.allocate(1)
    assert pool.allocate(2, after=first[-1]) == [first[-1] + 1, first[-1] + 2]
    assert pool.allocate(1, after=other[-1]) == [other[-1] + 1]
    assert pool.n_free == 193


def test_only_as_many_adjacent_pages_as_are_free() -> None:
    """What does not fit behind page 1 goes elsewhere, in one run."""
    pool = PagePool(8)
    assert pool.allocate(8) == [*range(8)]
    pool.free([2, 5, 6])
    assert pool.allocate(3, after=1) == [2, 5, 6]


def test_scattered_pages_are_given_when_there_are_no_others() -> None:
    """Every free page can be had."""
    pool = PagePool(8)
    pool.allocate(8)
    pool.free([1, 3, 6])
    assert sorted(pool.allocate(3)) == [1, 3, 6]
    assert pool.n_free == 0


def test_misuse_is_noticed() -> None:
    """Neither can more be taken than there is, nor a page be freed twice."""
    pool = PagePool(2)
    with pytest.raises(AssertionError, match="3 pages are wanted but 2 are free"):
        pool.allocate(3)
    with pytest.raises(AssertionError, match="page 0 is free already"):
        pool.free([0])
