"""How a token is chosen from logits."""

import itertools
import math
import warnings
import weakref
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ggpy.engine.config import SAMPLERS, SamplingParams, samplers_of_letters
from ggpy.engine.sampling import Sampler, SamplingMemory
from ggpy.engine.sampling.dry import Breakers
from ggpy.errors import ConfigError, GgpyError
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.team import Team
from tests.engine.compiled import candidates, sample
from tests.engine.sampler_meaning import Candidates, Random

ALL: dict[str, Any] = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 7}      # nothing is cut off


def log(*probabilities: float) -> NDArray[np.float32]:
    """Logits with these probabilities."""
    return np.log(np.array(probabilities, np.float32))


def drawn(logits: NDArray[np.float32], n: int = 300, tokens: tuple[int, ...] = (), **params: Any) -> set[int]:
    """All tokens that come up in `n` draws."""
    sampler = Sampler(SamplingParams(**{**ALL, **params}))
    return {sample(sampler, logits, tokens) for _ in range(n)}


def test_random_numbers_are_those_of_the_c_plus_plus_standard() -> None:
    """std::mt19937(5489) starts with 3499211612, 581869302; a double is (a + b * 2^32) / 2^64, a float a / 2^32."""
    assert Random(5489).float() == np.float32(3499211612 / 2**32)
    assert Random(5489).double() == (3499211612 + 581869302 * 2**32) / 2**64


def test_a_draw_takes_the_first_candidate_whose_running_sum_reaches_it() -> None:
    """After a sampler that sorts, candidates stand in order of probability: 0.5 (token 1), 0.3 (2), 0.2 (0)."""
    sampler, numbers = Sampler(SamplingParams(**ALL | {"top_k": 3})), Random(7)
    for _ in range(200):
        number = numbers.double()
        expected = 1 if number <= 0.5 else 2 if number <= 0.8 else 0
        assert sample(sampler, log(0.2, 0.5, 0.3)) == expected


def test_without_a_sampler_that_sorts_candidates_stand_by_id() -> None:
    """As in llama.cpp: 0.2 (token 0), 0.5 (1), 0.3 (2)."""
    sampler, numbers = Sampler(SamplingParams(**ALL)), Random(7)
    for _ in range(200):
        number = numbers.double()
        expected = 0 if number <= 0.2 else 1 if number <= 0.7 else 2
        assert sample(sampler, log(0.2, 0.5, 0.3)) == expected


@pytest.mark.parametrize("n", [1, 15, 511, 512, 513, 1024, 5000])
def test_a_draw_from_a_long_list(n: int) -> None:
    """Sums of blocks lead to the same token as running sums; one that cannot come is never found."""
    rng = np.random.default_rng(n)
    possible = rng.random(n) < 0.5
    possible[rng.integers(n)] = True
    logits, numbers = np.where(possible, 2.5, -np.inf).astype(np.float32), Random(7)
    sampler, running = Sampler(SamplingParams(**ALL)), np.cumsum(possible)          # exact
    for _ in range(100):
        assert sample(sampler, logits) == np.argmax(running >= running[-1] * numbers.double())


def test_a_single_candidate_still_takes_a_draw() -> None:
    """So the next token does not depend on how sure the model was of this one."""
    sampler, numbers = Sampler(SamplingParams(**ALL | {"min_p": 0.5})), Random(7)
    for _ in range(50):
        assert sample(sampler, log(0.1, 0.8, 0.1)) == 1
        numbers.double()
        assert sample(sampler, log(0.4, 0.6)) == (numbers.double() > 0.4)


def test_the_same_seed_gives_the_same_tokens() -> None:
    """And another seed other ones."""
    logits = np.zeros(1000, np.float32)

    def tokens(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingParams(**{**ALL, "seed": seed}))
        return [sample(sampler, logits) for _ in range(5)]

    assert tokens(1) == tokens(1) != tokens(2)
    assert tokens(None) != tokens(None)


def test_temperature_0_takes_the_best() -> None:
    """The lower id of two that are equal."""
    sampler = Sampler(SamplingParams(temperature=0))
    assert sample(sampler, np.array([1, 5, 5, 2], np.float32)) == 1


@pytest.mark.parametrize(("params", "expected"), [
    ({}, {0, 1, 2, 3}),
    ({"top_k": 2}, {0, 1}),
    ({"top_k": 9}, {0, 1, 2, 3}),
    ({"top_p": 0.3}, {0}),
    ({"top_p": 0.65}, {0, 1}),                  # 0.4 is too little, 0.4 + 0.3 enough
    ({"top_p": 0.65, "top_k": 2}, {0, 1}),      # of what top_k left: 0.57 is too little
    ({"top_p": 0.55, "top_k": 2}, {0}),
    ({"min_p": 0.6}, {0, 1}),                   # at least 0.24
    ({"min_p": 0.3, "top_p": 0.8}, {0, 1, 2}),  # min_p does not shrink the mass that top_p counts
    ({"temperature": 1e-3}, {0}),
])
def test_which_tokens_can_come_up(params: dict[str, Any], expected: set[int]) -> None:
    """Of four with probabilities 0.4, 0.3, 0.2 and 0.1."""
    assert drawn(log(0.4, 0.3, 0.2, 0.1), **params) == expected


def test_temperature_comes_after_the_cuts() -> None:
    """A high temperature does not let in what min_p has cut off, as in llama.cpp's order of samplers."""
    assert drawn(log(0.6, 0.3, 0.1), min_p=0.4, temperature=100.0) == {0, 1}


@pytest.mark.parametrize(("params", "expected"), [
    ({"repeat_penalty": 2.0}, [1.0, -4.0, 0.5, -1.0]),
    ({"presence_penalty": 0.5}, [1.5, -2.5, 0.5, -1.0]),
    ({"frequency_penalty": 0.5}, [1.0, -2.5, 0.5, -1.0]),
    ({"repeat_penalty": 2.0, "repeat_last_n": 1}, [1.0, -2.0, 0.5, -1.0]),
    ({"repeat_penalty": 2.0, "repeat_last_n": 0}, [2.0, -2.0, 0.5, -1.0]),
    ({"repeat_penalty": 2.0, "repeat_last_n": None}, [1.0, -4.0, 0.5, -1.0]),
])
def test_penalties(params: dict[str, Any], expected: list[float]) -> None:
    """Of logits 2, -2, 0.5, -1 after the tokens 0, 1, 0; the backend's own logits stay as they are."""
    p = SamplingParams(**params, samplers=("penalties",))
    assert candidates(p, np.array([2, -2, 0.5, -1], np.float32), [0, 1, 0]).logits.tolist() == expected


def test_a_banned_token_never_comes() -> None:
    """However probable it is: the end of an answer with ignore_eos, or what the model file suppresses."""
    sampler = Sampler(SamplingParams(temperature=0), banned=[1])
    assert sample(sampler, np.array([0, 9, 1], np.float32)) == 2


def test_what_the_model_file_suppresses_never_comes() -> None:
    """As ignore_eos bans the tokens that end an answer."""
    tokenizer: Any = SimpleNamespace(n_vocab=4, eog_ids=frozenset({3}), suppress_tokens=(1,))
    logits = np.array([0, 9, 1, 5], np.float32)
    assert sample(Sampler.for_tokenizer(SamplingParams(temperature=0), tokenizer), logits) == 3
    assert sample(Sampler.for_tokenizer(SamplingParams(temperature=0, ignore_eos=True), tokenizer), logits) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_an_error(value: float) -> None:
    """They would end in an arbitrary token."""
    with pytest.raises(GgpyError, match="expected a finite number"):
        sample(Sampler(SamplingParams()), np.array([0, value, 1], np.float32))


@pytest.mark.parametrize("params", [
    {"temperature": 1e38}, {"temperature": 1e300}, {"temperature": 1e-300},
    {"temperature": 1e308, "dynatemp_range": 1e308}, {"dynatemp_range": 1e300, "dynatemp_exponent": 1e300},
    {"repeat_penalty": 1e300}, {"presence_penalty": 1e300},
    {"frequency_penalty": 1e300}, {"dry_multiplier": 1e300, "dry_base": 1e300}, {"top_n_sigma": 1e300},
    {"logit_bias": {1: 1e300}}, {"mirostat": 1, "mirostat_tau": 1e300}, {"mirostat": 2, "mirostat_eta": 1e300},
    {"adaptive_target": 0.5, "samplers": ("adaptive_p",)}, {"top_k": 2**31 - 1, "min_keep": 2**31 - 1},
], ids=str)
def test_extreme_parameters_still_choose_a_token(params: dict[str, Any]) -> None:
    """And nobody is warned of an overflow."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sampler = Sampler(SamplingParams(seed=1, **params))
        for _ in range(3):
            assert 0 <= sample(sampler, np.array([3, -2, 25, 0.5, 1], np.float32), [0, 1, 0, 1, 0]) < 5


@settings(deadline=None)         # the first example may compile
@given(st.integers(1, 6000), st.integers(1, 12_000), st.integers(0, 99), st.sampled_from([2, 50, 10**6]))
def test_top_k_is_the_head_of_a_stable_sort(k: int, n: int, seed: int, levels: int) -> None:
    """With many equal logits or few, more than a group for each of the k or fewer."""
    logits = np.random.default_rng(seed).integers(0, levels, n + k).astype(np.float32)
    left = candidates(SamplingParams(samplers=("top_k",), top_k=k), logits)
    assert left.ids.tolist() == np.argsort(-logits, kind="stable")[:k].tolist()


@pytest.mark.parametrize(("params", "message"), [
    ({"temperature": -1}, "temperature=-1: expected a number of at least 0"),
    ({"temperature": math.nan}, "temperature=nan"),
    ({"top_k": -1}, "top_k=-1"),
    ({"top_p": 1.5}, "top_p=1.5: expected a number from 0 to 1"),
    ({"seed": 2**32}, "seed=4294967296"),
    ({"max_tokens": 0}, "max_tokens=0: expected a whole number from 1 to 2147483647"),
    ({"repeat_penalty": 0}, "repeat_penalty=0"),
    ({"stop": "abc"}, "expected a tuple of strings"),
    ({"stop": ("a", "")}, "expected strings that are not empty"),
    ({"stop": 5}, "stop=5: expected a tuple of strings"),
    ({"stop": map(str, itertools.count())}, "stop: there are more than 128"),
    ({"stop": ("\ud800",)}, "expected strings of valid Unicode"),
    ({"ignore_eos": "no"}, "ignore_eos='no': expected True or False"),
    ({"temperature": 10**400}, "temperature=1000.*: expected a number of at least 0"),
    ({"max_tokens": 10**5000}, "max_tokens=a int too large to write: expected a whole number"),
])
def test_parameters_that_cannot_work_are_refused(params: dict[str, Any], message: str) -> None:
    """The message names the parameter, its value and what is expected."""
    with pytest.raises(ConfigError, match=message):
        SamplingParams(**params)


@pytest.mark.parametrize(("params", "message"), [
    ({"top_k": 1.5}, "top_k=1.5: expected a whole number"),
    ({"top_k": None}, "top_k=None"),
    ({"temperature": True}, "temperature=True: expected a number"),
    ({"top_k": False}, "top_k=False: expected a whole number"),
    ({"seed": True}, "seed=True: expected a whole number from 0 to 4294967295"),
    ({"logit_bias": {3: True}}, "logit_bias of token 3"),
    ({"min_keep": -1}, "min_keep=-1"),
    ({"typical_p": 2}, "typical_p=2: expected a number from 0 to 1"),
    ({"top_n_sigma": math.inf}, "top_n_sigma=inf"),
    ({"xtc_threshold": -0.1}, "xtc_threshold=-0.1"),
    ({"dry_allowed_length": -1}, "dry_allowed_length=-1"),
    ({"dry_sequence_breakers": "\n"}, "dry_sequence_breakers=.*expected a tuple of strings"),
    ({"dry_sequence_breakers": ("",)}, "expected strings that are not empty"),
    ({"mirostat": 3}, "mirostat=3: expected a whole number from 0 to 2"),
    ({"adaptive_decay": 1}, "adaptive_decay=1: expected a number from 0 to 0.99"),
    ({"samplers": "top_k"}, "samplers='top_k': expected a tuple of strings"),
    ({"samplers": ("top_k", "best")}, "'best' is unknown; expected some of penalties, dry, "),
    ({"logit_bias": {3: math.nan}}, "logit_bias of token 3 is nan"),
    ({"logit_bias": [(-3, 1)]}, "logit_bias of token -3 is 1: expected a token from 0 to 2147483647"),
    ({"logit_bias": [(1.7, 1)]}, r"logit_bias: \(1.7, 1\) is not a token, a whole number, and a number"),
    ({"logit_bias": [("a", 1)]}, r"logit_bias: \('a', 1\) is not a token"),
    ({"logit_bias": [(1, "a")]}, "logit_bias of token 1 is 'a': expected .* a finite number or -inf"),
    ({"logit_bias": [(10**30, 1)]}, "logit_bias of token 1000000.*: expected a token from 0"),
    ({"logit_bias": [(1, 10**400)]}, "logit_bias of token 1 is 1000000.*: expected"),
    ({"logit_bias": [5]}, "logit_bias: 5 is not a token"),
    ({"logit_bias": [{1: 2, 3: 4}]}, "logit_bias: {1: 2, 3: 4} is not a token"),
    ({"logit_bias": 5}, "logit_bias=5: expected a mapping of tokens to numbers, or pairs"),
])
def test_sampler_parameters_that_cannot_work_are_refused(params: dict[str, Any], message: str) -> None:
    """As above, for what chooses and tunes the samplers."""
    with pytest.raises(ConfigError, match=message):
        SamplingParams(**params)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.sampled_from([10**400, -10**400, 2**31])
    | st.text(max_size=5) | st.sampled_from([*SAMPLERS, "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=6)


@settings(max_examples=1000, deadline=None)
@given(st.sampled_from([field.name for field in fields(SamplingParams)]), JSON)
def test_any_value_gives_parameters_or_says_what_is_wrong(name: str, value: Any) -> None:
    """Whatever JSON may hold, in whatever field; what is taken once is taken as it is."""
    try:
        params = SamplingParams(**{name: value})
    except ConfigError as refused:
        error = str(refused)
    else:
        assert replace(params) == params
        return
    assert error.startswith(name)


def test_samplers_have_several_names() -> None:
    """llama.cpp's other spellings, and its letters."""
    names = ("Top-K", "topp", "nucleus", "min_p", "temp", "typ", "typ-p", "xtc", "adaptive-p")
    assert SamplingParams(samplers=names).samplers == (
        "top_k", "top_p", "top_p", "min_p", "temperature", "typ_p", "typ_p", "xtc", "adaptive_p")
    assert samplers_of_letters("edskypmxt") == SamplingParams().samplers
    with pytest.raises(ConfigError, match="'z' is unknown; expected letters of e \\(penalties\\), "):
        samplers_of_letters("kz")


def test_a_biased_token() -> None:
    """The bias comes before everything else, those of one token add up, and -inf bans."""
    logits = np.array([1, 2, 3, 4], np.float32)
    assert sample(Sampler(SamplingParams(temperature=0, logit_bias=((0, 2.0), (0, 2.0)))), logits) == 0
    assert drawn(logits, logit_bias={0: -math.inf, 3: -math.inf}) == {1, 2}
    with pytest.raises(GgpyError, match="are all tokens banned"):
        sample(Sampler(SamplingParams(logit_bias=tuple((token, -math.inf) for token in range(4)))), logits)


def after_dry(window: list[int], n_vocab: int, breakers: dict[int, list[tuple[int, ...]]] | None = None,
              **params: Any) -> list[float]:
    """What DRY makes of logits that are all 0."""
    p = SamplingParams(samplers=("dry",), dry_penalty_last_n=None, **params)
    left = candidates(p, np.zeros(n_vocab, np.float32), window, Breakers.of(breakers or {}))
    return [float(x) for x in left.logits]


@pytest.mark.parametrize(("breakers", "expected"), [
    ({}, 3),
    ({8: [()]}, 1),
    ({9: [()]}, 0),
    ({7: [(8,)]}, 1),               # a breaker of two tokens
    ({7: [(8,), (8, 9)]}, 0),       # the longest counts
    ({7: [(9,)]}, 3),               # only its beginning is there
    ({9: [(7,)]}, 3),
])
def test_a_repetition_does_not_reach_across_a_breaker(
    breakers: dict[int, list[tuple[int, ...]]], expected: int
) -> None:
    """5 would repeat the three tokens 7 8 9; what counts is how many follow the last breaker."""
    logits = after_dry([7, 8, 9, 5, 7, 8, 9], 10, breakers, dry_multiplier=1, dry_base=2, dry_allowed_length=0)
    assert logits[5] == -(2**expected)


def test_dry_penalises_what_would_go_on_with_a_repetition() -> None:
    """After a b c d, a b c: d by multiplier * base^(3 - 2); after x, b c: y by multiplier * base^0."""
    a, b, c, d, x, y = range(6)
    logits = after_dry([x, b, c, y, a, b, c, d, a, b, c], 6, dry_multiplier=2, dry_base=3, dry_allowed_length=2)
    assert logits == [0, 0, 0, -6, 0, -2]


def test_dry_leaves_breakers_alone() -> None:
    """Otherwise a list could not have a line break after each item."""
    logits = after_dry([0, 1, 2, 3, 0, 1, 2], 4, {3: [()]}, dry_multiplier=2, dry_base=2, dry_allowed_length=2)
    assert logits == [0, 0, 0, 0]


def test_xtc_keeps_the_last_of_the_top_choices() -> None:
    """Of 0.4, 0.3, 0.2 and 0.1, three reach 0.15."""
    params: dict[str, Any] = {"xtc_probability": 1.0, "xtc_threshold": 0.15}
    assert drawn(log(0.4, 0.3, 0.2, 0.1), **params) == {2, 3}
    assert drawn(log(0.4, 0.3, 0.2, 0.1), **params, min_keep=3) == {0, 1, 2, 3}
    assert drawn(log(0.4, 0.3, 0.2, 0.1), **params | {"xtc_probability": 0.5}) == {0, 1, 2, 3}


def test_typical_p_prefers_the_average_to_the_best() -> None:
    """The entropy of these is 1.65: 0.2 (1.61) is nearest to it, then 0.15 (1.90) and then 0.1 (2.30)."""
    assert drawn(log(0.4, 0.2, 0.15, 0.1, 0.05, 0.05, 0.05), typical_p=0.1) == {1}
    assert drawn(log(0.4, 0.2, 0.15, 0.1, 0.05, 0.05, 0.05), typical_p=0.4) == {1, 2, 3}


def test_the_temperature_follows_the_entropy() -> None:
    """All as probable: the highest one; nearly certain: close to the lowest."""
    p = SamplingParams(samplers=("temperature",), temperature=1, dynatemp_range=0.5)
    assert candidates(p, np.array([4, 4], np.float32)).logits.tolist() == pytest.approx([4 / 1.5, 4 / 1.5])
    assert candidates(p, np.array([100, 0], np.float32)).logits.tolist() == pytest.approx([200, 0])


def test_mirostat_keeps_the_surprise_near_its_target() -> None:
    """Over many tokens drawn from logits that would surprise by 4.9 bits."""
    logits = np.random.default_rng(3).normal(0, 2.5, 500).astype(np.float32)
    bits = -np.log2(Candidates(np.arange(500), logits).probabilities())
    for version in (1, 2):
        sampler = Sampler(SamplingParams(seed=1, temperature=1, mirostat=version, mirostat_tau=3.0))
        assert np.mean([bits[sample(sampler, logits)] for _ in range(600)]) < 4
    sampler = Sampler(SamplingParams(**ALL))
    assert np.mean([bits[sample(sampler, logits)] for _ in range(600)]) > 4.5


@pytest.mark.parametrize(("s", "mu", "expected"), [
    (1.0, 5.0, 4),              # 2^5 / log(1000)
    (2.0, 10.0, 32),            # (2^10 / (1 - 1/1000))^(1/2)
    (0.0, 5.0, 1), (1e-9, 5.0, 1), (0.0, 12.0, 1000), (1e-9, 12.0, 1000),      # all as probable: the limits
])
def test_how_many_tokens_mirostat_1_considers(s: float, mu: float, expected: int) -> None:
    """Of 1,000 tokens whose probabilities fall with their rank to the power of `s`."""
    logits = (-s * np.log(np.arange(1, 1001))).astype(np.float32)
    assert len(candidates(SamplingParams(mirostat=1, temperature=1, mirostat_tau=mu / 2), logits).ids) == expected


def test_adaptive_p_prefers_its_target() -> None:
    """Of 0.6, 0.3 and 0.1 it takes the second most often, whose probability is the target."""
    sampler = Sampler(SamplingParams(samplers=("adaptive_p",), adaptive_target=0.3, adaptive_decay=0, seed=2))
    counts = np.bincount([sample(sampler, log(0.6, 0.3, 0.1)) for _ in range(300)], minlength=3)
    assert counts.argmax() == 1


def test_a_long_repetition_is_found_in_little_time() -> None:
    """4,000 equal tokens: copies longer than the largest penalty are not measured."""
    logits = after_dry([1] * 4000, 3, dry_multiplier=1)
    assert logits[0] == logits[2] == 0
    assert -np.inf < logits[1] < -1e38


def test_company_and_threads_change_nothing() -> None:
    """Rows of a step on three threads, and each request alone."""
    rng = np.random.default_rng(5)
    params = [SamplingParams(seed=i, top_k=40 * (i % 2), min_p=0, mirostat=2 * (i == 3)) for i in range(7)]
    logits = rng.normal(0, 2, (5, 7, 40_000)).astype(np.float32)
    alone = [[sample(sampler, rows[i]) for rows in logits] for i, sampler in enumerate(map(Sampler, params))]
    samplers, together = [Sampler(p) for p in params], []
    with Team(3, object_loader.addresses(["executor.run", "executor.worker"])) as team:
        memory = SamplingMemory(team)
        for rows in logits:
            choices = [(i, sampler, (), None) for i, sampler in enumerate(samplers)]
            together.append(memory.choose(rows, choices, rows.shape[1]))
    assert np.transpose(together).tolist() == alone


def test_requests_may_change_places_and_vocabularies() -> None:
    """Others come and go between their steps, and a model with fewer tokens takes its turn: each chooses as alone."""
    rng = np.random.default_rng(6)
    params = [SamplingParams(seed=i, repeat_penalty=1 + i % 2) for i in range(4)]
    logits = rng.normal(0, 2, (4, 4, 300)).astype(np.float32)
    alone = [[sample(sampler, rows[i, :n]) for rows, n in zip(logits, (300, 300, 200, 300), strict=True)]
             for i, sampler in enumerate(map(Sampler, params))]
    samplers, memory = [Sampler(p) for p in params], SamplingMemory()
    for step, (order, n) in enumerate([((0, 1, 2, 3), 300), ((2, 1, 3, 0), 300), ((2, 1, 3, 0), 200), ((3, 0), 300)]):
        tokens = memory.choose(logits[step], [(i, samplers[i], (), None) for i in order], n)
        assert tokens == [alone[i][step] for i in order]


def test_a_sampler_that_will_not_choose_any_more_is_let_go() -> None:
    """What it carries may be large; the row of another one stays where it is."""
    samplers, memory = [Sampler(SamplingParams(seed=i)) for i in range(2)], SamplingMemory()
    logits = np.random.default_rng(7).normal(0, 2, (2, 300)).astype(np.float32)
    twin = Sampler(SamplingParams(seed=1))
    expected = [sample(twin, logits[1]) for _ in range(2)]
    tokens = memory.choose(logits, [(i, sampler, (), None) for i, sampler in enumerate(samplers)], 300)[1:]
    gone = weakref.ref(samplers[0])
    memory.forget(samplers.pop(0))
    assert gone() is None
    tokens += memory.choose(logits, [(1, samplers[0], (), None)], 300)
    assert tokens == expected
    gone = weakref.ref(samplers[0])
    memory.clear()
    del samplers
    assert gone() is None


@pytest.mark.parametrize("params", [{}, {"temperature": 0, "logit_bias": ((3, 1.5),)}, {"mirostat": 2},
                                    {"xtc_probability": 0.5}])
def test_a_steady_row_is_the_same_for_every_token(params: dict[str, Any]) -> None:
    """It is written once and stands there for the tokens that follow."""
    sampler = Sampler(SamplingParams(seed=1, **params))
    assert sampler.has_steady_row
    first = sampler.row(300, [1, 2, 3]).tobytes()
    sample(sampler, np.zeros(300, np.float32), [1, 2, 3])
    assert sampler.row(300, [1, 2, 3, 4, 5]).tobytes() == first


def test_a_mask_that_leaves_no_token_is_named() -> None:
    """Whatever the logits say; other rows of the same sampler may have a mask or none."""
    sampler, logits = Sampler(SamplingParams(temperature=0), is_masked=True), np.arange(40, dtype=np.float32)
    with pytest.raises(GgpyError, match="after 2 tokens no token of this model can go on with what the answer is con"):
        sample(sampler, logits, (1, 2), np.zeros(2, np.int32))
    assert sample(sampler, logits, (1, 2), np.array([1 << 7 | 1 << 9, 0], np.int32)) == 9
    assert sample(sampler, logits, (1, 2)) == 39


def test_a_banned_token_that_a_mask_asks_for_is_an_error() -> None:
    """Bans and masks both hold."""
    sampler, logits = Sampler(SamplingParams(temperature=0), banned=[3], is_masked=True), np.zeros(40, np.float32)
    with pytest.raises(GgpyError, match="are all tokens banned, or all that the answer may go on with"):
        sample(sampler, logits, (), np.array([1 << 3, 0], np.int32))
