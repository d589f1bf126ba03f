"""What is expected of a proposal's tokens, and how that is learnt."""

from ggpy.engine.speculation.proposer import Kind, Proposal
from ggpy.engine.speculation.track import FIRST_RATES, Rate, Track, first_rate


def ngram(n_matching: int, n: int = 6) -> Proposal:
    """`n` tokens behind a match."""
    return Proposal((1,) * n, (1.0,) * n, "ngram", n_matching)


def test_each_token_is_of_the_kind_that_a_match_up_to_it_has() -> None:
    """In powers of two: behind 3 tokens come one that 3 agree with, four with 4 to 7, then those with 8 or more."""
    assert [ngram(3).kind_at(i) for i in range(6)] == [("ngram", n) for n in (2, 4, 4, 4, 4, 8)]


def test_tokens_of_a_model_are_all_of_one_kind() -> None:
    """It has no match that could become longer."""
    assert [Proposal((1, 2), (0.5, 0.5), "draft").kind_at(i) for i in range(2)] == [("draft", 0)] * 2


def test_a_token_is_likelier_the_longer_the_match_has_become() -> None:
    """Given that those before it are right."""
    chances = Track().chances_of(ngram(2), {})
    given = [after / before for before, after in zip([1.0, *chances], chances, strict=False)]
    assert given == [first_rate(("ngram", n)) for n in (2, 2, 4, 4, 4, 4)]


def test_a_match_that_breaks_early_says_nothing_of_longer_ones() -> None:
    """Two tokens agree and the next is right, the one behind it wrong: none of the others was reached."""
    track, rates = Track(proposal=ngram(2)), dict[Kind, Rate]()
    track.learn(6, 1, rates)
    assert rates == {("ngram", 2): Rate(2.0, 1.0)}


def test_every_kind_learns_from_the_tokens_of_its_own() -> None:
    """Of six tokens behind two, two are of the first kind, and three of the next are right."""
    track, rates = Track(proposal=ngram(2)), dict[Kind, Rate]()
    track.learn(6, 5, rates)
    assert rates == {("ngram", 2): Rate(2.0, 2.0), ("ngram", 4): Rate(4.0, 3.0)}
    assert track.rates == rates


def test_agreement_longer_than_any_known_is_as_good_as_the_longest_known() -> None:
    """Not worse, as if nothing were known of it; each proposer has rates."""
    assert [first_rate(("ngram", n)) for n in (1, 32, 64, 128, 256)] == [0.15, 0.97, 0.98, 0.98, 0.98]
    assert [first_rate(("past", n)) for n in (4, 16)] == [FIRST_RATES["past"][0]] * 2
    assert first_rate(("draft", 0)) == FIRST_RATES["draft"][0]
