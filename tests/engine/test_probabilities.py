"""How probable tokens were: of the model's logits, and among what the samplers left."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability, of_logits, of_weights
from ggpy.engine.request import Request
from ggpy.engine.sampling import Sampler
from ggpy.errors import ConfigError
from tests.engine.compiled import candidates, sample
from tests.engine.conftest import Driver, hashed_logits
from tests.engine.driving import Guesser

RAW, LEFT = ProbabilitySpec(4), ProbabilitySpec(4, after_sampling=True)
MakeDriver = Callable[..., Driver]


def test_probabilities_of_logits_are_a_softmax() -> None:
    """Equal ones by token; what cannot come has none; what is asked for beyond the vocabulary is not there."""
    logits = np.log(np.array([0.25, 0.5, 0, 0.25], np.float32), where=[True, True, False, True],
                    out=np.full(4, -np.inf, np.float32))
    token, logprob, top = of_logits(logits, 3, 9)
    assert token == 3
    assert logprob == pytest.approx(math.log(0.25))
    assert [other for other, _ in top] == [1, 0, 3, 2]
    assert [math.exp(p) for _, p in top] == pytest.approx([0.5, 0.25, 0.25, 0])
    assert [other for other, _ in of_logits(logits, 3, 2).top] == [1, 0]
    assert of_logits(logits, 2, 0) == TokenProbability(2, -math.inf, ())


def test_probabilities_of_candidates_are_parts_of_their_weights() -> None:
    """In whatever order they stand; those without weight are not listed."""
    ids, weights = np.array([7, 2, 9, 4], np.int32), np.array([1, 2, 0, 1], np.float32)
    token, logprob, top = of_weights(ids, weights, 7, 10)
    assert token == 7
    assert math.exp(logprob) == pytest.approx(0.25)
    assert [other for other, _ in top] == [2, 4, 7]
    assert [math.exp(p) for _, p in top] == pytest.approx([0.5, 0.25, 0.25])


@pytest.mark.parametrize("n", [-1, 1.5, "4", True])
def test_a_count_that_is_none_is_refused(n: Any) -> None:
    """With what was found."""
    with pytest.raises(ConfigError, match=r"n_top=.*: expected a whole number from 0"):
        ProbabilitySpec(n)


@pytest.mark.parametrize("params", [
    {}, {"temperature": 0}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}, {"top_k": 0, "top_p": 0.9},
    {"samplers": ("temperature", "typ_p"), "typical_p": 0.9}, {"mirostat": 1}, {"mirostat": 2},
    {"logit_bias": ((3, 2.5),), "temperature": 1.7}])
@pytest.mark.parametrize("n_vocab", [61, 6000])
def test_what_samplers_leave_is_told_as_it_was_drawn_by(params: dict[str, Any], n_vocab: int) -> None:
    """The softmax of the candidates before the draw, of which the chosen token is one."""
    p = SamplingParams(seed=5, **params)
    logits = np.random.default_rng(n_vocab).normal(0, 3, n_vocab).astype(np.float32)
    sampler = Sampler(p, keeps_left=True)
    token = sample(sampler, logits)
    assert token == sample(Sampler(p), logits)
    left = candidates(p, logits)
    expected = dict(zip(left.ids.tolist(), np.log(left.probabilities().astype(np.float64)).tolist(), strict=True))
    _, logprob, top = sampler.probability(token, n_vocab)
    assert logprob == pytest.approx(expected[token], abs=1e-5)
    assert len(top) == len(expected)
    assert [p for _, p in top] == sorted((p for _, p in top), reverse=True)
    assert all(p == pytest.approx(expected[other], abs=1e-5) for other, p in top)


def asked(spec: ProbabilitySpec | None, seed: int) -> Request:
    params = SamplingParams(seed=seed, temperature=1.0, top_k=20, max_tokens=24, ignore_eos=True)
    return Request([1, 2, 3], params, probabilities=spec)


def told(driver: Driver, r: Request) -> list[TokenProbability]:
    driver.run(r)
    return [entry for event in driver.events[r.id] for entry in event.probabilities]


@pytest.mark.parametrize("spec", [RAW, LEFT])
def test_drafts_change_no_probability(make_driver: MakeDriver, spec: ProbabilitySpec) -> None:
    """Each token has that of its own row, whether it was guessed rightly, wrongly or not at all."""
    alone = told(make_driver(max_running=8), asked(spec, 7))
    guesser = Guesser(make_driver, luck=3)
    r = asked(spec, 7)
    assert told(make_driver(max_running=8, speculator=guesser), r) == alone
    assert guesser.num_accepted > 5
    assert [entry.token for entry in alone] == r.output_tokens
    assert max(len(entry.top) for entry in alone) == 4


def test_probabilities_are_those_of_the_row_that_a_token_follows(make_driver: MakeDriver) -> None:
    """With others beside it that ask for nothing, or for other things."""
    driver = make_driver(n_pages=16)
    r, silent, other = asked(RAW, 1), asked(None, 2), asked(LEFT, 3)
    driver.add(silent)
    driver.add(other)
    entries = told(driver, r)
    assert not any(event.probabilities for event in driver.events[silent.id])
    for i, entry in enumerate(entries):
        logits = hashed_logits(np.array(r.tokens[: 3 + i], np.int64)).astype(np.float64)
        logprobs = logits - np.log(np.exp(logits).sum())
        assert entry.logprob == pytest.approx(logprobs[entry.token], abs=1e-6)
        assert [token for token, _ in entry.top] == np.argsort(-logprobs, kind="stable")[:4].tolist()


def test_a_constraint_is_a_sampler_too() -> None:
    """Of two tokens that a mask allows, the chosen one has its part; the model's own view is another."""
    sampler, logits = Sampler(SamplingParams(temperature=1, seed=1), is_masked=True, keeps_left=True), np.zeros(
        40, np.float32)
    token = sample(sampler, logits, (), np.array([1 << 3 | 1 << 5, 0], np.int32))
    entry = sampler.probability(token, 9)
    assert [other for other, _ in entry.top] == [3, 5]
    assert math.exp(entry.logprob) == pytest.approx(0.5)
