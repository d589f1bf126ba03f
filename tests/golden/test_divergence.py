"""The measures of divergence, on distributions that can be checked by hand."""

import math

import numpy as np
import pytest

from tests.golden.divergence import grouped, kl_divergence, log_softmax, logsumexp


def test_logsumexp_and_log_softmax_do_not_overflow() -> None:
    """Logits of 1000 and 1000 + ln 3 are probabilities of 1/4 and 3/4."""
    logits = np.array([[1000, 1000 + math.log(3)]], np.float32)
    assert logsumexp(logits) == pytest.approx([1000 + math.log(4)], abs=1e-4)
    assert np.exp(log_softmax(logits)) == pytest.approx(np.array([[1 / 4, 3 / 4]]), abs=1e-4)


def test_divergence_of_two_coins() -> None:
    """A fair coin against one of 1/4 and 3/4: ln(2) / 2 + ln(2/3) / 2; nothing against itself."""
    fair, bent = np.log([1 / 2, 1 / 2]), np.log([1 / 4, 3 / 4])
    assert kl_divergence(fair, bent) == pytest.approx(math.log(4 / 3) / 2)
    assert kl_divergence(fair, fair) == 0


def test_tokens_that_never_come_count_nothing() -> None:
    """A certain token against probability 1/2."""
    assert kl_divergence(np.array([0, -np.inf]), np.log([1 / 2, 1 / 2])) == pytest.approx(math.log(2))


def test_grouping_adds_up_the_tokens_that_are_not_named() -> None:
    """Of 1/8, 4/8, 2/8, 1/8, tokens 1 and 0 stay and the others make 3/8; with all named nothing is left."""
    logits = np.log(np.array([1, 4, 2, 1], np.float32))
    assert np.exp(grouped(logits, np.array([1, 0]))) == pytest.approx([4 / 8, 1 / 8, 3 / 8])
    assert np.exp(grouped(logits, np.arange(4))) == pytest.approx([1 / 8, 4 / 8, 2 / 8, 1 / 8, 0])
