"""The chain, which sorts as little as it can, against the plain meaning of each sampler."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.engine.config import SAMPLERS, SamplingParams
from ggpy.engine.sampling import Sampler
from tests.engine import sampler_meaning as meaning
from tests.engine.compiled import candidates, sample
from tests.engine.sampler_meaning import Candidates, Random

Logits = NDArray[np.float32]
TOKENS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 1, 4, 1, 5, 9, 2, 3, 1, 4, 1]
ON: dict[str, Any] = {       # every sampler cuts something
    "repeat_penalty": 1.3, "frequency_penalty": 0.2, "presence_penalty": 0.1, "dry_multiplier": 1.5, "top_n_sigma": 2.5,
    "top_k": 300, "typical_p": 0.9, "top_p": 0.9, "min_p": 0.02, "xtc_probability": 1.0, "xtc_threshold": 0.05,
    "temperature": 0.7}


def some_banned(rng: np.random.Generator) -> Logits:
    return np.where(rng.random(700) < 0.9, -np.inf, rng.normal(0, 2, 700)).astype(np.float32)


def one_left(rng: np.random.Generator) -> Logits:
    return np.where(np.arange(50) == rng.integers(50), 3.0, -np.inf).astype(np.float32)


LOGITS: dict[str, Callable[[np.random.Generator], Logits]] = {
    "normal": lambda rng: rng.normal(0, 3, 1000).astype(np.float32),
    "flat": lambda rng: rng.normal(0, 0.3, 3000).astype(np.float32),
    "huge vocabulary": lambda rng: rng.normal(0, 3, 200_000).astype(np.float32),
    "ties": lambda rng: rng.integers(-3, 4, 5000).astype(np.float32),
    "all equal": lambda rng: np.full(4000, 1.5, np.float32),
    "large numbers": lambda rng: rng.normal(0, 1e30, 500).astype(np.float32),
    "signed zeros": lambda rng: np.where(rng.random(300) < 0.5, 0.0, -0.0).astype(np.float32),
    "ten tokens": lambda rng: rng.normal(0, 2, 10).astype(np.float32),
    "some banned": some_banned,
    "one left": one_left,
    "one token": lambda rng: np.zeros(1, np.float32),
}


def apply(name: str, meant: Candidates, p: SamplingParams) -> None:
    """Sampler `name` of `p` as `sampler_meaning` has it."""
    match name:
        case "penalties":
            meaning.penalties(meant, TOKENS, p.repeat_penalty, p.frequency_penalty, p.presence_penalty)
        case "dry":
            meaning.dry(meant, TOKENS, p.dry_multiplier, p.dry_base, p.dry_allowed_length, len(TOKENS))
        case "top_n_sigma":
            meaning.top_n_sigma(meant, p.top_n_sigma)
        case "top_k":
            meaning.top_k(meant, p.top_k)
        case "typ_p":
            meaning.typ_p(meant, p.typical_p, p.min_keep)
        case "top_p":
            meaning.top_p(meant, p.top_p, p.min_keep)
        case "min_p":
            meaning.min_p(meant, p.min_p, p.min_keep)
        case "xtc" if p.xtc_probability > 0:
            meaning.xtc(meant, p.xtc_threshold, p.min_keep)
        case "temperature" if p.dynatemp_range:
            meaning.dynamic_temperature(meant, p.temperature, p.dynatemp_range, p.dynatemp_exponent)
        case "temperature":
            meaning.temperature(meant, p.temperature)


def check(logits: Logits, p: SamplingParams, mask: NDArray[np.int32] | None = None) -> None:
    """The chain leaves the same candidates with the same logits in the same order, and draws the same token."""
    meant = Candidates(np.arange(len(logits)), logits.copy())
    if mask is not None:
        meaning.mask(meant, mask)
    with np.errstate(over="ignore"):
        for name in p.samplers:
            apply(name, meant, p)
    sampler = Sampler(p, is_masked=mask is not None)
    assert sample(sampler, logits, TOKENS, mask) == meaning.draw(meant, Random(p.seed or 0).double())
    left = candidates(p, logits, TOKENS, mask=mask)
    if "typ_p" in p.samplers and len(left.ids) == len(meant.ids) and np.mean(left.ids != meant.ids) < 0.01:
        for each in (left, meant):       # distances from the average that differ in their last bit may change places
            each.take(np.argsort(each.ids))
    assert left.ids.tolist() == meant.ids.tolist()
    np.testing.assert_allclose(left.logits, meant.logits, rtol=1e-6)


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("name", SAMPLERS)
def test_each_sampler_alone(name: str, kind: str) -> None:
    """Whatever the logits are like."""
    check(LOGITS[kind](np.random.default_rng(1)), SamplingParams(**ON, samplers=(name,), seed=5))


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("params", [
    {}, {"top_k": 0}, {"top_k": 0, "min_p": 0}, {"top_k": 0, "top_p": 1}, {"top_k": 0, "top_p": 1, "min_p": 0},
    {"min_keep": 5, "top_k": 0}, {"temperature": 0}, {"dynatemp_range": 0.5}, {"temperature": 0, "xtc_probability": 1},
    {"repeat_penalty": 1.4, "repeat_last_n": None, "top_k": 0}, ON,
], ids=str)
def test_llama_cpps_order(params: dict[str, Any], kind: str) -> None:
    """The default chain, with more or less of it in use."""
    check(LOGITS[kind](np.random.default_rng(2)), SamplingParams(**{"seed": 6, **params}))


@pytest.mark.parametrize("kind", LOGITS)
@pytest.mark.parametrize("params", [{}, {"top_k": 0, "min_p": 0}, {"temperature": 0}, ON], ids=str)
def test_only_tokens_of_a_mask_come(params: dict[str, Any], kind: str) -> None:
    """A third of all tokens, whatever the chain: the others are as if the model ruled them out."""
    rng = np.random.default_rng(3)
    logits = LOGITS[kind](rng)
    allowed = rng.random(-(-len(logits) // 32) * 32) < 1 / 3
    allowed[np.argmax(logits)] = len(logits) < 100          # one token or one candidate: it has to stay
    allowed[int(np.flatnonzero(logits > -np.inf)[-1])] = True
    mask = np.packbits(allowed, bitorder="little").view(np.int32)
    check(logits, SamplingParams(**{"seed": 7, **params}), mask)


@pytest.mark.parametrize("seed", range(60))
def test_any_order(seed: int) -> None:
    """Samplers left out, repeated and in any order, with random parameters on random kinds of logits."""
    rng = np.random.default_rng(seed)
    kind = [kind for kind in LOGITS if kind != "huge vocabulary"][rng.integers(len(LOGITS) - 1)]
    check(LOGITS[kind](rng), SamplingParams(
        seed=seed, samplers=tuple(SAMPLERS[i] for i in rng.integers(0, len(SAMPLERS), rng.integers(1, 7))),
        repeat_penalty=1.3, frequency_penalty=0.2, dry_multiplier=1.5, repeat_last_n=None,
        dry_allowed_length=int(rng.integers(0, 4)), top_n_sigma=rng.uniform(0.5, 3), top_k=int(rng.integers(1, 900)),
        typical_p=rng.uniform(0.1, 1), top_p=rng.uniform(0.1, 1), min_p=rng.uniform(0, 0.3), xtc_probability=1.0,
        xtc_threshold=rng.uniform(0.01, 0.3), temperature=rng.uniform(0.3, 2), min_keep=int(rng.integers(0, 9)),
        dynatemp_range=float(rng.choice([0.0, 0.3]))))


@pytest.mark.parametrize("params", [{}, {"top_k": 0, "top_p": 1, "min_p": 0}, {"typical_p": 0.8}, {"mirostat": 2}],
                         ids=str)
def test_tokens_are_drawn_as_often_as_they_are_probable(params: dict[str, Any]) -> None:
    """Chi-square of 4,000 draws from the candidates that the chain leaves: below its 99.9% quantile."""
    logits = np.linspace(0, 2, 12, dtype=np.float32)
    p = SamplingParams(**{"seed": 11, "temperature": 1.0, "min_p": 0.2, "mirostat_tau": 20, "mirostat_eta": 0} | params)
    meant = Candidates(np.arange(12), logits)
    for name in () if p.mirostat else p.samplers:
        apply(name, meant, SamplingParams(**{"temperature": 1.0, "min_p": 0.2, "xtc_threshold": 1.0, **params}))
    sampler = Sampler(p)
    counts = np.bincount([sample(sampler, logits) for _ in range(4000)], minlength=12)
    expected = np.zeros(12)
    expected[meant.ids] = 4000 * meant.probabilities()
    assert counts[expected == 0].sum() == 0
    possible = expected > 0
    chi_square = np.sum((counts - expected)[possible] ** 2 / expected[possible])
    degrees = np.count_nonzero(possible) - 1
    # Wilson and Hilferty's approximation of the quantile
    assert chi_square < degrees * (1 - 2 / (9 * degrees) + 3.09 * np.sqrt(2 / (9 * degrees))) ** 3
