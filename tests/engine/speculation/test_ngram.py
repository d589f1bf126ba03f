"""Prompt lookup and its index."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggpy.engine.request import Request
from ggpy.engine.speculation import ngram_index
from ggpy.engine.speculation.ngram import PromptLookup
from ggpy.engine.speculation.ngram_index import NgramIndex, common_suffix

N_VOCAB = 100


def lookup(tokens: list[int], n_max: int = 4, ngram_min: int = 2, ngram_max: int = 8) -> tuple[int, ...]:
    """What is proposed behind `tokens`."""
    return PromptLookup(N_VOCAB, ngram_min, ngram_max).propose(Request(tokens), n_max).tokens


def test_what_followed_the_last_tokens_before_is_proposed() -> None:
    """1 2 3 was followed by 4 5 6 7."""
    assert lookup([1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3]) == (4, 5, 6, 7)


def test_the_longest_match_wins() -> None:
    """2 3 came last with 9, but 1 2 3 with 4."""
    assert lookup([1, 2, 3, 4, 0, 2, 3, 9, 0, 1, 2, 3], n_max=2) == (4, 0)


def test_of_equally_long_matches_the_latest_wins() -> None:
    """1 2 was followed by 3, then by 4."""
    assert lookup([1, 2, 3, 0, 1, 2, 4, 0, 8, 1, 2], n_max=1) == (4,)


def test_a_long_match_is_found_behind_many_short_ones() -> None:
    """6 7 8 9 came first of all; since then 8 9 came a hundred times with others before them."""
    assert lookup([6, 7, 8, 9, 5, *[0, 8, 9, 1] * 100, 6, 7, 8, 9], n_max=2) == (5, 0)


def test_a_match_that_reaches_the_end_goes_on_periodically() -> None:
    """1 2 3 1 2 3 1 2: 3 1 2 3 ..."""
    assert lookup([1, 2, 3, 1, 2, 3, 1, 2], n_max=5) == (3, 1, 2, 3, 1)


@pytest.mark.parametrize("tokens", [[1], [1, 2], [1, 2, 3, 4, 5], [1, 9, 2, 9]])
def test_without_a_match_of_two_tokens_nothing_is_proposed(tokens: list[int]) -> None:
    """A single token is no reason."""
    assert lookup(tokens) == ()


def test_tokens_zero_at_the_start_are_no_match_for_fewer_tokens() -> None:
    """The first n-gram is cut off by the start; it must not look like one with zeros."""
    assert lookup([5, 6, 0, 5], ngram_min=2) == ()


def test_tokens_that_come_later_are_taken_in() -> None:
    """The index belongs to the request and grows with it."""
    proposer = PromptLookup(N_VOCAB, 2, 8)
    request = Request([1, 2, 3])
    assert proposer.propose(request, 3).tokens == ()
    request.tokens += [7, 1, 2]
    assert proposer.propose(request, 3).tokens == (3, 7, 1)


def test_a_long_prompt_is_taken_in_by_parts_and_nothing_is_proposed_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here three tokens at each step, since all answers wait for the index."""
    monkeypatch.setattr(ngram_index, "MOST_NEW", 3)
    proposer = PromptLookup(N_VOCAB, 1, 8)
    request = Request([1, 2, 3, 4, 9, 1, 2])
    assert [proposer.propose(request, 2).tokens for _ in range(4)] == [(), (), (3, 4), (3, 4)]
    request.tokens.append(3)
    assert proposer.propose(request, 2).tokens == (4, 9)


def test_tokens_that_a_shift_left_are_looked_at_anew() -> None:
    """Fewer tokens, at other places."""
    proposer = PromptLookup(N_VOCAB, 2, 8)
    request = Request([5, 6, 1, 2, 3, 4, 9, 1, 2])
    assert proposer.propose(request, 1).tokens == (3,)
    request.tokens = [1, 2, 4, 9, 1, 2]
    assert proposer.propose(request, 1).tokens == (4,)


def test_a_proposal_tells_how_many_tokens_agree() -> None:
    """1 2 3 did; beyond ngram_max nobody looks."""
    proposer = PromptLookup(N_VOCAB, 2, 4)
    assert proposer.propose(Request([1, 2, 3, 4, 9, 1, 2, 3]), 2).n_matching == 3
    assert proposer.propose(Request([1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 6]), 2).n_matching == 4


def test_a_finished_request_is_forgotten() -> None:
    """Memory is bounded by what is live."""
    proposer = PromptLookup(N_VOCAB, 2, 8)
    request = Request([1, 2, 1, 2])
    proposer.propose(request, 1)
    proposer.finished(request)
    proposer.finished(request)
    assert proposer._indexes == {}


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 4), st.integers(0, 59))
def test_the_index_finds_what_a_scan_finds(tokens: list[int], n: int, split: int) -> None:
    """All places, latest first, however the tokens come in; for its own end and for another context."""
    growing = tokens[:split]
    index = NgramIndex(growing, n, N_VOCAB)
    index.update()
    growing += tokens[split:]
    index.update()
    ends = [i for i in reversed(range(n - 1, len(tokens))) if tokens[i - n + 1 : i + 1] == tokens[-n:]]
    assert index.matches(tokens, 99) == (ends if len(tokens) >= n else [])
    if len(tokens) >= n:
        assert index.own_matches(99) == ends[1:]


@given(st.lists(st.integers(0, 2), min_size=1, max_size=24), st.integers(1, 3), st.integers(3, 9))
def test_the_longest_match_is_that_of_a_scan(tokens: list[int], least: int, most: int) -> None:
    """Of the first n_max .. n_min tokens that occurred before, most recent occurrence first."""
    def match_length(end: int) -> int:
        length = common_suffix(tokens, end + 1, tokens, len(tokens), most)
        return length if length >= least else 0

    best = max(range(len(tokens) - 1), key=lambda end: (match_length(end), end), default=None)
    expected: tuple[int, ...] = ()
    if best is not None and match_length(best):
        copied = list(tokens)
        for i in range(5):
            copied.append(copied[best + 1 + i])
        expected = tuple(copied[len(tokens):])
    assert lookup(tokens, 5, least, most) == expected
