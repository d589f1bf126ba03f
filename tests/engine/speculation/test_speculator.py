"""How many tokens are drafted: against simulated acceptance and simulated time."""

import itertools
import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request
from ggpy.engine.speculation import SpeculationConfig, Speculator
from ggpy.engine.speculation.proposer import Proposal
from ggpy.engine.speculation.step_times import StepTimes
from ggpy.errors import ConfigError

PLAIN_S = 0.02          # of a simulated step of one row
Seconds = Callable[[int], float]


def chunked(n_rows: int) -> float:
    """Seconds of a step: rows are cheap up to 16, then everything is read again."""
    return PLAIN_S * (1 + 0.05 * (n_rows - 1) + 0.5 * ((n_rows - 1) // 16))


def expensive(n_rows: int) -> float:
    """Seconds of a step in which each row takes as long as the first."""
    return PLAIN_S * n_rows


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Being asked for drafts takes 10 microseconds, whatever else this machine does."""
    ticks = itertools.count()
    monkeypatch.setattr("ggpy.engine.speculation.speculator.time",
                        SimpleNamespace(perf_counter=lambda: 1e-5 * next(ticks)))


class Guesses:
    """Proposes 15 tokens each time; the simulation decides which are right."""

    def propose(self, request: Request, n_max: int) -> Proposal:
        return Proposal((1,) * n_max, (1.0,) * n_max, "past")

    def finished(self, request: Request) -> None:
        pass


def speculator(max_rows: int = 64, n_ctx: int = 10**6, **config: Any) -> Speculator:
    """One that asks Guesses alone."""
    made = Speculator(SpeculationConfig(proposers=(), **config), n_vocab=100, n_ctx=n_ctx, max_rows=max_rows)
    made._proposers = [Guesses()]
    return made


def simulate(made: Speculator, requests: Sequence[Request], n_steps: int, acceptance: float, seconds: Seconds,
             seed: int = 0) -> tuple[float, float]:
    """Seconds that pass, and those that as many tokens take without drafts."""
    rng = random.Random(seed)
    passed_s, n_tokens = 0.0, 0
    for _ in range(n_steps):
        made.draft(requests)
        step_s = seconds(sum(1 + len(request.draft_tokens) for request in requests)) * rng.uniform(0.97, 1.03)
        passed_s += step_s
        for request in requests:
            n_accepted = 0
            while n_accepted < len(request.draft_tokens) and rng.random() < acceptance:
                n_accepted += 1
            made.saw(request, len(request.draft_tokens), n_accepted, step_s)
            request.tokens += [1] * (1 + n_accepted)
            n_tokens += 1 + n_accepted
    return passed_s, n_tokens / len(requests) * seconds(len(requests))


def free(n: int = 1) -> list[Request]:
    """Requests without an end."""
    return [Request([1], SamplingParams(max_tokens=None)) for _ in range(n)]


@pytest.mark.parametrize("seconds", [chunked, expensive])
@pytest.mark.parametrize("n_requests", [1, 8, 40])
def test_drafts_that_are_never_right_cost_less_than_two_percent(seconds: Seconds, n_requests: int) -> None:
    """Over 2,000 steps; the chance, not the clock, is what the drafts have against them."""
    passed_s, plain_s = simulate(speculator(), free(n_requests), 2000, 0.0, seconds)
    assert passed_s <= 1.02 * plain_s


@pytest.mark.parametrize("n_steps", [100, 400])
@pytest.mark.parametrize("acceptance", [0.0, 0.02, 0.05])
def test_short_answers_lose_little_too(n_steps: int, acceptance: float) -> None:
    """Each of ten requests, one after the other, has an account of its own."""
    made = speculator()
    times = []
    for seed in range(10):
        (request,) = free()
        times.append(simulate(made, [request], n_steps, acceptance, chunked, seed))
        made.finished(request)
    assert sum(passed for passed, _ in times) <= 1.02 * sum(plain for _, plain in times)


@pytest.mark.parametrize("acceptance", [0.5, 0.8, 0.95])
def test_length_comes_near_the_best_fixed_one(acceptance: float) -> None:
    """At least 93% of the tokens a second of whichever length is best, 0 to 15."""
    passed_s, plain_s = simulate(speculator(), free(), 2000, acceptance, chunked)
    speeds = [sum(acceptance**i for i in range(length + 1)) / (chunked(1 + length) / PLAIN_S) for length in range(16)]
    assert plain_s / passed_s >= 0.93 * max(speeds)


def test_nothing_is_drafted_where_a_row_costs_as_much_as_it_brings() -> None:
    """At 80% and a time that is proportional to the rows, drafts lose; but hardly any are made."""
    passed_s, plain_s = simulate(speculator(), free(), 2000, 0.8, expensive)
    assert passed_s <= 1.02 * plain_s


def test_with_many_requests_each_has_fewer_drafts() -> None:
    """Rows beyond 16 cost, so the likeliest drafts of all have them."""
    lengths = []
    for n_requests in (1, 4, 16, 64):
        made, requests = speculator(), free(n_requests)
        simulate(made, requests, 200, 0.8, chunked)
        made.draft(requests)
        lengths.append(max(len(request.draft_tokens) for request in requests))
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 6
    assert lengths[-1] == 0


def test_the_least_number_of_drafts_is_tried_at_once() -> None:
    """Fewer would never be drafted, and nothing would be learnt."""
    made, (request,) = speculator(n_min=6), free()
    lengths = []
    for _ in range(4):
        made.draft([request])
        lengths.append(len(request.draft_tokens))
        made.saw(request, lengths[-1], lengths[-1], chunked(1 + lengths[-1]))
        request.tokens += [1] * (1 + lengths[-1])
    assert lengths[0] == 0      # the first step is plain
    assert min(lengths[1:]) >= 6


def test_drafts_come_back_when_they_are_right_again() -> None:
    """After 500 steps in which none was."""
    made, requests = speculator(), free()
    simulate(made, requests, 500, 0.0, chunked)
    passed_s, plain_s = simulate(made, requests, 1500, 0.9, chunked)
    assert plain_s / passed_s > 2.5


@pytest.mark.parametrize(("params", "n_ctx", "limit"), [
    ({"max_tokens": 4}, 1000, 3),
    ({"max_tokens": None}, 8, 4),
    ({"max_tokens": None}, 4, 0),
    ({"max_tokens": 1}, 1000, 0),
])
def test_no_draft_goes_beyond_the_end(params: dict[str, Any], n_ctx: int, limit: int) -> None:
    """A step adds one token more than it has drafts; the request has 3 tokens."""
    made = speculator(n_ctx=n_ctx)
    simulate(made, free(), 50, 1.0, chunked)
    request = Request([1, 2, 3], SamplingParams(**params))
    made.draft([request])
    assert len(request.draft_tokens) == limit


def test_a_step_has_no_more_rows_than_it_may() -> None:
    """Outputs are kept for so many."""
    made, requests = speculator(max_rows=10), free(4)
    for _ in range(100):
        made.draft(requests)
        assert sum(1 + len(request.draft_tokens) for request in requests) <= 10
        for request in requests:
            made.saw(request, len(request.draft_tokens), len(request.draft_tokens), PLAIN_S)


def test_steps_that_read_prompts_teach_nothing_about_time_but_drafts_go_on() -> None:
    """Their time is not that of their rows."""
    made, (request,) = speculator(), free()
    n_drafted = 0
    for _ in range(200):
        made.draft([request])
        n_drafted += len(request.draft_tokens)
        made.saw(request, len(request.draft_tokens), len(request.draft_tokens), None)
    assert n_drafted > 1000


def test_what_others_put_in_place_of_a_draft_says_nothing_of_it() -> None:
    """A grammar knows tokens that must follow; that they are right does not make the proposer a good one."""
    made, (request,) = speculator(), free()
    for _ in range(3):
        made.draft([request])
        request.draft_tokens = (7, 8)
        made.saw(request, 2, 2, PLAIN_S)
    made.draft([request])
    assert made._rates == {}


def test_what_is_finished_is_forgotten() -> None:
    """Also by the proposers."""
    made = Speculator(SpeculationConfig(), n_vocab=100, n_ctx=1000, max_rows=64)
    request = Request([1, 2, 3, 1, 2, 3])
    for _ in range(3):
        made.draft([request])
        made.saw(request, len(request.draft_tokens), 0, PLAIN_S)
    assert made._tracks.keys() == {request.id}
    made.finished(request)
    assert made._tracks == {}


def test_a_repeated_prompt_is_drafted_from_by_default() -> None:
    """The first step is plain; then a step has at most twice the rows of any before, since nobody knows their time."""
    made = Speculator(SpeculationConfig(), n_vocab=100, n_ctx=1000, max_rows=64)
    request = Request([*range(20), 50, *range(4)])
    drafted = []
    for _ in range(3):
        made.draft([request])
        drafted.append(request.draft_tokens)
        made.saw(request, len(request.draft_tokens), len(request.draft_tokens), PLAIN_S)
        first = request.tokens[-1] + 1
        request.tokens += range(first, first + len(request.draft_tokens) + 1)
    assert drafted[:3] == [(), (5,), (7, 8, 9)]


def test_the_first_look_at_a_long_prompt_is_not_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes as long as the step, once; the account would be empty before anything was drafted."""
    made, (request,) = speculator(), free()
    made.draft([request])
    made.saw(request, 0, 0, PLAIN_S)
    now = itertools.chain([0.0, 0.0, PLAIN_S], itertools.repeat(PLAIN_S))      # of `draft`, and around the proposers
    monkeypatch.setattr("ggpy.engine.speculation.speculator.time", SimpleNamespace(perf_counter=lambda: next(now)))
    made.draft([request])
    assert made._tracks[request.id].balance == pytest.approx(0.51)
    assert len(request.draft_tokens) == 1       # a step has at most twice the rows of any before


@pytest.mark.parametrize(("asking_s", "gained"), [(0.004 * PLAIN_S, 0.01), (0.008 * PLAIN_S, 0.007)])
def test_being_asked_is_charged_beyond_half_a_hundredth_of_the_step(
    monkeypatch: pytest.MonkeyPatch, asking_s: float, gained: float
) -> None:
    """A step gains a hundredth; if asking used that up, a request without luck would never draft again."""
    ticks = itertools.count()
    monkeypatch.setattr("ggpy.engine.speculation.speculator.time",
                        SimpleNamespace(perf_counter=lambda: asking_s * next(ticks)))
    made, (request,) = speculator(), free()
    made._times.saw(1, PLAIN_S)
    for _ in range(100):            # asking takes its usual time
        made._charge_proposing([], asking_s)
    made._n_since_plain = 0
    before = made._tracks[request.id].balance
    made.draft([request])
    request.draft_tokens = ()
    made.saw(request, 0, 0, None)
    made._learn()
    assert made._tracks[request.id].balance - before == pytest.approx(gained, abs=1e-5)


def test_times_of_unseen_rows_lie_between_those_of_seen_ones() -> None:
    """Or beyond them, as usual."""
    times = StepTimes()
    times.saw(1, 0.1)
    times.saw(5, 0.3)
    assert times.seconds(3) == pytest.approx(0.2)
    assert times.seconds(9) > times.seconds(5)


def test_all_times_follow_a_change_that_one_number_of_rows_shows() -> None:
    """A longer context makes every step longer; one odd step hardly matters."""
    times = StepTimes()
    for _ in range(50):
        times.saw(1, 0.1)
        times.saw(9, 0.2)
    times.saw(1, 5.0)
    assert times.seconds(9) < 0.25
    for _ in range(50):
        times.saw(1, 0.2)
    assert times.seconds(9) == pytest.approx(0.4, rel=0.2)


@pytest.mark.parametrize(("values", "message"), [
    ({"n_max": 0}, "n_max=0: expected a whole number from 1 to 256"),
    ({"n_min": 16}, "n_min=16: expected at most n_max, which is 15"),
    ({"ngram_min": 5, "ngram_max": 4}, "ngram_min=5: expected at most ngram_max"),
    ({"p_min": 1.5}, "p_min=1.5: expected a probability"),
    ({"proposers": ("magic",)}, "expected a tuple of some of ngram, past, draft"),
])
def test_settings_that_cannot_work_are_refused(values: dict[str, object], message: str) -> None:
    """The message says what would."""
    with pytest.raises(ConfigError, match=message):
        SpeculationConfig(**values)     # type: ignore[arg-type]
