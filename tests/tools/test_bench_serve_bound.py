"""The ideal cache that hit rates are measured against."""

import pytest

from ggpy.tools.bench_serve_bound import Access, Bound, bound


def test_nothing_is_cached_at_first() -> None:
    """The last token of the answer is never computed."""
    assert bound([Access([1, 2, 3, 9, 9], 3)]) == Bound(n_prompt=3, n_cached=0, n_unique=4)


def test_the_longest_common_beginning_counts() -> None:
    """Of prompts and answers, whoever had them."""
    accesses = [Access([1, 2, 3, 9, 8], 3), Access([1, 2, 3, 9, 5, 7], 5), Access([1, 2, 4, 7], 3)]
    assert bound(accesses) == Bound(n_prompt=11, n_cached=4 + 2, n_unique=4 + 1 + 1)


def test_the_last_token_of_a_prompt_is_computed() -> None:
    """There would be no logits otherwise."""
    assert bound([Access([1, 2, 3, 9], 3), Access([1, 2, 3, 9], 3)]).n_cached == 2


def test_equal_tokens_behind_different_ones_are_not_equal() -> None:
    """Only beginnings are shared."""
    assert bound([Access([1, 2, 3, 0], 3), Access([9, 2, 3, 0], 3)]).n_cached == 0


def test_a_small_cache_forgets_what_was_not_used_for_longest() -> None:
    """Room for two prompts of three tokens: the third drives out the first, whose ends go before its beginning."""
    a, b, c = [1, 2, 3, 0], [4, 5, 6, 0], [7, 8, 9, 0]
    accesses = [Access(tokens, 3) for tokens in (a, b, a, c, b, a)]
    assert bound(accesses).n_cached == 2 + 2 + 2
    assert bound(accesses, capacity=6).n_cached == 2        # a once; c drives b out, b a
    assert bound(accesses, capacity=7).n_cached == 2 + 1 + 1    # one token of b is left, then one of a


def test_a_cache_smaller_than_a_prompt_keeps_its_beginning() -> None:
    """Two of five tokens."""
    assert bound([Access([1, 2, 3, 4, 5, 0], 5)] * 2, capacity=2).n_cached == 2


@pytest.mark.parametrize("capacity", [1, 4, 16, 64, 256])
def test_a_larger_cache_saves_no_less(capacity: int) -> None:
    """And one that holds all tokens is as good as one without limit."""
    accesses = [Access([i % 3, *range(i % 5, 20), 0], 20) for i in range(40)]
    unlimited = bound(accesses)
    assert bound(accesses, capacity).n_cached <= bound(accesses, 2 * capacity).n_cached <= unlimited.n_cached
    assert bound(accesses, unlimited.n_unique) == unlimited


def test_the_hit_rate_of_no_requests_is_0() -> None:
    """Not an error."""
    assert bound([]).hit_rate == 0.0
    assert Bound(8, 6, 9).hit_rate == 0.75
