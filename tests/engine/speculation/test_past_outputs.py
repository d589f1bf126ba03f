"""Proposals from what the engine wrote before."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggpy.engine.request import Request
from ggpy.engine.speculation import ngram_index
from ggpy.engine.speculation.past_outputs import PastOutputs

N_VOCAB = 100


def answered(*outputs: list[int], max_tokens: int = 1000, p_min: float = 0.0) -> PastOutputs:
    """A proposer that has seen these answers, each to a prompt of its own."""
    past = PastOutputs(N_VOCAB, max_tokens, p_min)
    for i, output in enumerate(outputs):
        request = Request([90 + i % 10])
        request.tokens += output
        past.finished(request)
    return past


def test_the_continuation_of_an_earlier_answer_is_proposed() -> None:
    """Three tokens must agree; the prompt does not count as an answer."""
    past = answered([1, 2, 3, 4, 5])
    assert past.propose(Request([7, 1, 2, 3]), 8).tokens == (4, 5)
    assert past.propose(Request([7, 2, 3]), 8).tokens == ()
    assert past.propose(Request([90, 1, 2]), 8).tokens == ()


def test_long_answers_are_taken_in_by_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here four tokens at each proposal, since all answers wait for the index; the second answer is in at the third."""
    monkeypatch.setattr(ngram_index, "MOST_NEW", 4)
    past = answered([9, 8, 7, 6, 5], [1, 2, 3, 4, 5])
    assert [past.propose(Request([1, 2, 3]), 8).tokens for _ in range(3)] == [(), (), (4, 5)]
    assert past.propose(Request([9, 8, 7]), 8).tokens == (6, 5)


def test_the_most_frequent_continuation_wins() -> None:
    """Two of three say 4, and one of these two 8."""
    past = answered([1, 2, 3, 4, 8], [1, 2, 3, 4, 9], [1, 2, 3, 5, 5])
    proposal = past.propose(Request([1, 2, 3]), 8)
    assert proposal.tokens in ((4, 8), (4, 9))
    assert proposal.confidences == (2 / 3, 1 / 2)


def test_a_longer_match_counts_alone() -> None:
    """0 1 2 3 was followed by 7, 1 2 3 alone twice by 4."""
    past = answered([1, 2, 3, 4], [0, 1, 2, 3, 7], [1, 2, 3, 4])
    assert past.propose(Request([0, 1, 2, 3]), 1).tokens == (7,)


def test_a_proposal_ends_where_the_answer_did() -> None:
    """The next answer in memory does not follow it."""
    past = answered([1, 2, 3, 4], [5, 6, 7, 8])
    assert past.propose(Request([2, 3, 4]), 4).tokens == ()
    assert past.propose(Request([1, 2, 3]), 4).tokens == (4,)


def test_improbable_tokens_are_not_proposed() -> None:
    """Below p_min, and where the whole guess is improbable."""
    outputs = [[1, 2, 3, 10 + i, 50] for i in range(5)]
    assert answered(*outputs, p_min=0.3).propose(Request([1, 2, 3]), 4).tokens == ()
    assert len(answered(*outputs).propose(Request([1, 2, 3]), 4).tokens) == 2


def test_of_too_many_tokens_those_used_last_are_kept() -> None:
    """A fourth answer of 9 tokens and its end do not fit; of the others one may stay, and the first was used last."""
    past = answered(*[[10 * i + j for j in range(9)] for i in range(3)], max_tokens=39)
    assert past.propose(Request([0, 1, 2]), 1).tokens == (3,)
    past.finished(answer([30 + j for j in range(9)]))
    known = [i for i in range(4) if past.propose(Request([10 * i, 10 * i + 1, 10 * i + 2]), 1).tokens]
    assert known == [0, 3]


def answer(output: list[int]) -> Request:
    """A request with this output."""
    request = Request([99])
    request.tokens += output
    return request


@given(st.lists(st.lists(st.integers(0, 3), max_size=30), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_memory_is_bounded_and_proposals_are_tokens(outputs: list[list[int]], context: list[int]) -> None:
    """Whatever was answered; the parting token is never proposed."""
    past = answered(*outputs, max_tokens=60)
    proposal = past.propose(Request([9, *context]), 6)
    assert past.n_tokens <= 60
    assert len(proposal.tokens) <= 6
    assert set(proposal.tokens) <= set(range(4))
    assert all(0 < confidence <= 1 for confidence in proposal.confidences)


def test_answers_to_others_are_not_proposed() -> None:
    """Requests of another salt share nothing, also after some answers are forgotten."""
    past = PastOutputs(N_VOCAB, 39)
    for salt, output in [(1, [1, 2, 3, 4]), (2, [1, 2, 3, 5]), (2, [50 + i for i in range(9)]),
                         (1, [60 + i for i in range(9)])]:
        request = Request([90], salt=salt)
        request.tokens += output
        past.finished(request)
        assert past.propose(Request([1, 2, 3], salt=1), 1).tokens == (4,)
    past.finished(Request([*range(70, 80)], salt=3))
    assert past.propose(Request([1, 2, 3], salt=2), 1).tokens == (5,)
    assert past.propose(Request([1, 2, 3]), 1).tokens == ()
