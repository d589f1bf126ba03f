"""The pool of KV pages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggpy.engine.kv import PagePool, pages_for
from ggpy.errors import OutOfPagesError


def test_a_page_holds_32_tokens() -> None:
    """The last page may be part full."""
    assert [pages_for(n) for n in (0, 1, 32, 33, 64)] == [0, 1, 1, 2, 2]


def test_pages_come_in_runs() -> None:
    """Adjacent pages read faster."""
    assert PagePool(8).allocate(5).tolist() == [0, 1, 2, 3, 4]


def test_a_sequence_grows_into_the_page_behind_it() -> None:
    """A second sequence starts far enough behind the first for both to grow."""
    pool = PagePool(16)
    first = pool.allocate(2)
    second = pool.allocate(2)
    assert second.tolist() == [9, 10]
    assert pool.allocate(1, after=int(first[-1])).tolist() == [2]
    assert pool.allocate(1, after=int(second[-1])).tolist() == [11]


def test_scattered_pages_are_used_when_no_run_is_long_enough() -> None:
    """The longest runs first, so that there are few."""
    pool = PagePool(8)
    pool.allocate(8)
    pool.release(np.array([0, 2, 3, 4, 6], np.int32))
    assert sorted(pool.allocate(4).tolist()) == [0, 2, 3, 4]
    assert pool.n_free == 1


def test_a_pool_that_is_too_full_says_so_and_changes_nothing() -> None:
    """The error states what is needed and what there is."""
    pool = PagePool(3)
    pool.allocate(2)
    with pytest.raises(OutOfPagesError, match="2 KV pages are needed but 1 of 3 are free"):
        pool.allocate(2)
    assert (pool.n_free, pool.n_held) == (1, 2)


def test_a_shared_page_is_free_when_its_last_holder_lets_go() -> None:
    """Holders are counted."""
    pool = PagePool(4)
    pages = pool.allocate(2)
    pool.share(pages[:1])
    pool.release(pages)
    assert (pool.n_free, pool.n_held) == (3, 1)
    pool.release(pages[:1])
    assert (pool.n_free, pool.n_held) == (4, 0)


@pytest.mark.parametrize("pages", [[0], [1, 1], [3]])
def test_releasing_more_often_than_holding_is_an_error(pages: list[int]) -> None:
    """A page freed twice would end up with two owners."""
    pool = PagePool(4)
    pool.allocate(3)
    pool.release(np.array([0], np.int32))
    with pytest.raises(AssertionError, match="released more often than held"):
        pool.release(np.array(pages, np.int32))


def test_free_pages_cannot_be_shared() -> None:
    """Their contents belong to nobody."""
    with pytest.raises(AssertionError, match="free pages cannot be shared"):
        PagePool(2).share(np.array([0], np.int32))


@given(st.integers(1, 40), st.lists(st.tuples(st.booleans(), st.integers(0, 12)), max_size=60))
def test_every_page_is_held_by_one_or_free(n_pages: int, actions: list[tuple[bool, int]]) -> None:
    """Over any sequence of allocations, growth and releases."""
    pool = PagePool(n_pages)
    tables: list[list[int]] = []
    for grows, n in actions:
        if n <= pool.n_free and (not grows or not tables):
            tables.append(pool.allocate(n).tolist())
        elif grows and n <= pool.n_free and tables[0]:
            tables[0] += pool.allocate(n, after=tables[0][-1]).tolist()
        elif tables:
            pool.release(np.array(tables.pop(0), np.int32))
        held = [page for table in tables for page in table]
        assert len(set(held)) == len(held) == pool.n_held == n_pages - pool.n_free
        assert all(0 <= page < n_pages for page in held)
