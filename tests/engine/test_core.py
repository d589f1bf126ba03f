"""The engine's loop: what runs in a step, and what becomes of a request."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.engine.config import Pooling, SamplingParams
from ggpy.engine.kv_cache import Miss
from ggpy.engine.request import ContextShift, Request
from ggpy.engine.sampling import Sampler
from ggpy.errors import ConfigError, GrammarError, OutOfMemoryError, PromptTooLongError, QueueFullError, RequestError
from tests.engine.conftest import whole

MakeDriver = Callable[..., Any]     # the Driver of conftest.py
N_VOCAB, END = 61, 60


def request(prompt: list[int] | range, **params: Any) -> Request:
    """Greedy and without an end of its own, unless `params` say otherwise."""
    return Request(list(prompt), SamplingParams(**{"temperature": 0, "ignore_eos": True, "max_tokens": 4, **params}))


def expected_tokens(make_driver: MakeDriver, r: Request) -> list[int]:
    """What the same request generates alone."""
    alone = Request(list(r.prompt_tokens), r.params)
    make_driver().run(alone)
    return alone.output_tokens


def step_shape(driver: Any) -> list[tuple[int, int, int]]:
    """The sequences of the last step: first position, tokens, outputs."""
    return [(s.first_position, len(s.tokens), s.n_outputs) for s in driver.backend.steps[-1]]


def test_a_prompt_is_read_in_chunks_then_tokens_follow_one_by_one(make_driver: MakeDriver) -> None:
    """20 tokens with 16 a step: 16, then 4 with an output, then one at a time."""
    driver = make_driver()
    driver.add(request(range(20)))
    shapes = []
    for _ in driver.steps_left():
        shapes += step_shape(driver)
    assert shapes == [(0, 16, 0), (16, 4, 1), (20, 1, 1), (21, 1, 1), (22, 1, 1)]


def test_prompts_share_what_generating_requests_leave(make_driver: MakeDriver) -> None:
    """A long prompt never stalls a request that generates."""
    driver = make_driver()
    driver.add(request(range(3), max_tokens=9))
    driver.step()
    driver.add(request([7] * 40))
    driver.add(request([8] * 40))
    driver.step()
    assert step_shape(driver) == [(3, 1, 1), (0, 15, 0)]
    for _ in range(2):
        driver.step()
    assert step_shape(driver) == [(5, 1, 1), (30, 10, 1), (0, 5, 0)]


def test_events_carry_tokens_and_text(make_driver: MakeDriver) -> None:
    """One event a token, the reason in the last."""
    driver = make_driver()
    r = request(range(5), max_tokens=3)
    driver.run(r)
    events = driver.events[r.id]
    assert [token for event in events for token in event.tokens] == r.output_tokens
    assert [event.finish_reason for event in events] == [None, None, "length"]
    assert driver.text(r) == "".join(chr(65 + token) for token in r.output_tokens)


def test_the_last_event_says_why_no_more_was_reused(make_driver: MakeDriver) -> None:
    """The first prompt was new; the second one differs from it behind 40 tokens."""
    driver = make_driver()
    first, second = request(range(50)), request([*range(40), *range(10)])
    for r, expected in ((first, Miss("new_prefix", 0)), (second, Miss("edited_history", 40))):
        driver.run(r)
        *events, last = driver.events[r.id]
        assert [event.miss for event in events] == [None] * len(events)
        assert (last.miss, last.num_cached) == (expected, expected.position)


def test_the_end_token_ends_the_answer_and_has_no_text(make_driver: MakeDriver) -> None:
    """It is counted among the tokens."""
    driver = make_driver(n_ctx=256)
    r = request([3], ignore_eos=False, max_tokens=None, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=1)
    driver.run(r)
    assert r.finish_reason == "stop"
    assert r.output_tokens[-1] == END
    assert len(driver.text(r)) == len(r.output_tokens) - 1


def test_a_stop_string_ends_the_answer_before_it(make_driver: MakeDriver) -> None:
    """Here it lies across the third and fourth token."""
    free = request(range(5), max_tokens=6)
    driver = make_driver()
    driver.run(free)
    text = driver.text(free)
    r = request(range(5), max_tokens=6, stop=(text[2:4],))
    driver.run(r)
    assert driver.text(r) == text[:2]
    assert (r.finish_reason, r.num_generated) == ("stop", 4)


def test_an_answer_ends_where_the_context_does(make_driver: MakeDriver) -> None:
    """Prompt and answer together fill it."""
    driver = make_driver(n_ctx=64)
    r = request(range(60), max_tokens=None)
    driver.run(r)
    assert (r.finish_reason, len(r.tokens)) == ("length", 64)


def test_a_prompt_that_cannot_fit_is_refused_with_both_sizes(make_driver: MakeDriver) -> None:
    """Nothing is queued."""
    driver = make_driver(n_ctx=64)
    with pytest.raises(PromptTooLongError, match=r"the prompt has 64 tokens but the context holds 64"):
        driver.add(request([1] * 64))
    assert not driver.core.has_work


@pytest.mark.parametrize(("prompt", "message"), [
    ([], "the prompt has no tokens"),
    ([1, N_VOCAB], "token 61 is not in the vocabulary; expected 0 to 60"),
    ([1, -1], "token -1"),
])
def test_a_prompt_that_the_model_cannot_read_is_refused(
    make_driver: MakeDriver, prompt: list[int], message: str
) -> None:
    """Before it is queued."""
    with pytest.raises(RequestError, match=message):
        make_driver().add(request(prompt))


def test_a_context_larger_than_the_pool_is_refused(make_driver: MakeDriver) -> None:
    """A request that fills its context must fit the pool when it is alone."""
    with pytest.raises(ConfigError, match=r"n_ctx=65: the KV pool has 2 pages of 32 tokens, expected 3 or more"):
        make_driver(n_pages=2, n_ctx=65)


def test_a_request_waits_until_there_are_pages_for_its_prompt(make_driver: MakeDriver) -> None:
    """With 4 pages, a prompt of 3 leaves no room for one of 2."""
    driver = make_driver(n_pages=4)
    first, second = request([1] * 90, max_tokens=2), request([2] * 60, max_tokens=2)
    driver.add(first)
    driver.add(second)
    driver.step()
    assert (first.state, second.state) == ("running", "waiting")
    for _ in driver.steps_left():
        pass
    assert (first.finish_reason, second.finish_reason) == ("length", "length")


def test_the_youngest_gives_way_when_pages_run_out_and_resumes(make_driver: MakeDriver) -> None:
    """Two answers grow beyond what the pool holds; both come out as if alone."""
    driver = make_driver(n_pages=4)
    first, second = request([1] * 60, max_tokens=30), request([2] * 60, max_tokens=30)
    driver.add(first)
    driver.add(second)
    states = set()
    for _ in driver.steps_left():
        states.add((first.state, second.state))
    assert ("running", "waiting") in states
    assert ("waiting", "running") not in states
    for r in (first, second):
        assert r.output_tokens == expected_tokens(make_driver, r)
        assert len(driver.events[r.id]) == 30       # nothing is emitted twice


def test_a_request_that_gave_way_comes_before_those_that_never_ran(make_driver: MakeDriver) -> None:
    """Its caller has seen the beginning of the answer already."""
    driver = make_driver(n_pages=4)
    first, second, third = (request([1] * n, max_tokens=30) for n in (60, 60, 90))
    for r in (first, second, third):
        driver.add(r)
    ends = [event.request_id for events in driver.steps_left() for event in events if event.finish_reason]
    assert ends == [first.id, second.id, third.id]


def test_no_more_requests_run_than_can_generate_in_one_step(make_driver: MakeDriver) -> None:
    """So that all that generate get a token in each step."""
    driver = make_driver(max_batch_tokens=2, max_running=4)
    for _ in range(3):
        driver.add(request([1], max_tokens=3))
    sizes = [len(events) for events in driver.steps_left()]
    assert sizes == [2, 2, 2, 1, 1, 1]


def test_cancelling_frees_pages_at_once(make_driver: MakeDriver) -> None:
    """In every state; a second time it does nothing."""
    driver = make_driver(n_pages=4)
    running, waiting = request([1] * 90), request([2] * 90)
    driver.add(running)
    driver.add(waiting)
    driver.step()
    assert driver.core.cancel(running.id)
    assert driver.n_available == 4
    assert driver.core.cancel(waiting.id)
    assert (running.finish_reason, waiting.finish_reason) == ("cancelled", "cancelled")
    assert not driver.core.cancel(running.id)
    assert driver.step() == []


def test_one_requests_error_is_not_the_others(make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose logits are no numbers ends; the rest of its step goes on."""
    driver = make_driver()
    bad, good = request([1, 2, 3]), request([4, 5, 6])
    forward = driver.backend.forward

    def broken(sequences: Any) -> Any:
        logits = forward(sequences)
        logits[[s.first_position == 0 and s.tokens[0] == 1 for s in sequences]] = np.nan
        return logits

    monkeypatch.setattr(driver.backend, "forward", broken)
    driver.run(bad, good)
    assert (bad.finish_reason, good.finish_reason) == ("error", "length")
    assert "expected a finite number" in str(bad.error)
    assert good.output_tokens == expected_tokens(make_driver, good)


class Unruly:
    """A constraint that fails when it is asked about drafts."""

    is_finished = False

    def fill(self, masks: NDArray[np.int32], drafts: Sequence[int] = ()) -> None:
        masks[:] = -1

    def accept(self, token: int) -> None:
        pass

    def forced(self) -> Sequence[int]:
        raise GrammarError("too complex")


def test_a_constraint_that_fails_between_steps_ends_its_own_answer(make_driver: MakeDriver) -> None:
    """With what was said until then; the others go on."""
    driver = make_driver()
    constrained, other = request([1, 2, 3]), request([4, 5, 6])
    driver.add(other)
    generation = driver.core.prepare(constrained)
    generation.constraint = Unruly()
    generation.sampler = Sampler(constrained.params, is_masked=True)
    driver.core.add(generation)
    for _ in driver.steps_left():
        pass
    last = driver.events[constrained.id][-1]
    assert (last.finish_reason, str(last.error)) == ("error", "too complex")
    assert len(driver.text(constrained)) == 1
    assert other.finish_reason == "length"


def test_a_failed_step_can_be_forgotten(make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After `reset` there are no requests, all pages are free and nothing of what they held is believed."""
    driver = make_driver()
    driver.run(request(range(40)))
    driver.add(request(range(50)))
    with monkeypatch.context() as patch:
        patch.setattr(driver.backend, "forward", lambda sequences: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            driver.step()
    driver.core.reset()
    assert not driver.core.has_work
    assert driver.core.cache.n_free == (8,)
    again = request(range(50))
    driver.run(again)
    assert again.num_cached == 0
    assert again.output_tokens == expected_tokens(make_driver, again)


@pytest.mark.parametrize("n_outputs", [0, 1, 5, 30])
def test_logits_of_a_sequence_come_in_steps_that_the_backend_allows(make_driver: MakeDriver, n_outputs: int) -> None:
    """Rows without an output are not bound by max_outputs; the pages are free afterwards."""
    driver = make_driver(max_batch_tokens=16, max_running=4)
    tokens = list(range(30))
    logits = driver.logits(tokens, n_outputs)
    every = make_driver(max_batch_tokens=64, max_running=64).logits(tokens, 30)
    assert logits.shape == (n_outputs, N_VOCAB)
    assert np.array_equal(logits, every[30 - n_outputs:])
    assert driver.n_available == 8


def test_more_tokens_than_the_context_holds_are_refused_before_memory_is_taken(make_driver: MakeDriver) -> None:
    """The result for all of them would have 16 TB."""
    with pytest.raises(PromptTooLongError, match="there are 65 tokens but the context holds 64"):
        make_driver(n_ctx=64).logits([1] * 65, 1 << 36)


def test_memory_that_is_not_there_is_one_requests_trouble(make_driver: MakeDriver) -> None:
    """The engine goes on."""
    driver = make_driver()
    with pytest.raises(OutOfMemoryError, match="GB for 1,125,899,906,842,624 rows of 61 numbers are not there"):
        driver.logits([1], 1 << 50)
    driver.check_pages()


def test_outputs_that_nobody_wants_any_more_are_not_computed(make_driver: MakeDriver) -> None:
    """Here after the first step of two; the pages are free."""
    driver = make_driver(max_batch_tokens=16)
    parts = driver.core.logits([1] * 30, 1)
    next(parts)
    parts.close()
    assert len(driver.backend.steps) == 1
    assert driver.n_available == 8


@pytest.mark.parametrize(("n_tokens", "states"), [(30, ("running", "running")), (60, ("running", "waiting")),
                                                  (128, ("waiting", "waiting"))])
def test_requests_give_way_to_logits_and_resume(
    make_driver: MakeDriver, n_tokens: int, states: tuple[str, str]
) -> None:
    """The youngest first, and only if they hold the pages: here 1 and 2 of 4. Nobody's answer changes."""
    driver = make_driver(n_pages=4, max_batch_tokens=64)
    first, second = request([1] * 20, max_tokens=8), request([2] * 40, max_tokens=8)
    driver.add(first)
    driver.add(second)
    driver.step()
    logits = driver.logits([3] * n_tokens, 1)
    assert (first.state, second.state) == states
    assert np.array_equal(logits, make_driver().logits([3] * n_tokens, 1))
    for _ in driver.steps_left():
        pass
    for r in (first, second):
        assert r.output_tokens == expected_tokens(make_driver, r)
        assert len(driver.events[r.id]) == 8


class Guesser:
    """Drafts what a request will say, but each token that `luck` + 1 divides is wrong; -> any speculator."""

    def __init__(self, make_driver: MakeDriver, luck: int) -> None:
        self.make_driver, self.luck = make_driver, luck
        self.answers: dict[int, list[int]] = {}
        self.num_accepted = self.num_drafted = 0

    def draft(self, requests: list[Request]) -> None:
        for r in requests:
            if r.id not in self.answers:
                self.answers[r.id] = expected_tokens(self.make_driver, r)
            n = r.num_generated
            drafts = self.answers[r.id][n : n + 5]
            r.draft_tokens = tuple((t + 1) % 60 if (n + i) % (self.luck + 1) == 0 else t for i, t in enumerate(drafts))

    def reset(self) -> None:
        self.answers.clear()

    def saw(self, r: Request, n_drafted: int, n_accepted: int, step_s: float) -> None:
        self.num_drafted += n_drafted
        self.num_accepted += n_accepted

    def finished(self, r: Request) -> None:
        pass


requests = st.builds(
    lambda n, token, params: request([token] * n, **params),
    st.integers(1, 100), st.integers(0, 5),
    st.fixed_dictionaries({
        "max_tokens": st.integers(1, 60), "temperature": st.sampled_from([0, 1.0]), "seed": st.integers(0, 3),
        "ignore_eos": st.booleans(), "stop": st.sampled_from([(), ("A",), ("BC", "D")]),
    }))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 30), requests, st.integers(0, 60)), max_size=8), st.integers(4, 9),
       st.integers(1, 40), st.integers(1, 5), st.sampled_from([(None,), (None, 40), (50, 33)]),
       st.sampled_from([None, 0, 1, 3]))
def test_any_workload_ends_as_if_each_request_were_alone(
    make_driver: MakeDriver, workload: list[tuple[int, Request, int]], n_pages: int, max_batch_tokens: int,
    max_running: int, windows: tuple[int | None, ...], luck: int | None,
) -> None:
    """Requests arrive at random steps, some are cancelled, some tokens are drafted, priorities differ.

    The driver checks pages and the backend the budget.
    """
    driver = make_driver(n_pages=n_pages, max_batch_tokens=max_batch_tokens, max_running=max_running, windows=windows,
                         speculator=None if luck is None else Guesser(make_driver, luck))
    # drawn examples are shared between runs, so each run makes requests of its own
    todo = [(start, Request(list(r.prompt_tokens), r.params, priority=stay % 2), start + stay)
            for start, r, stay in workload]
    cancelled = set()
    for time in range(100_000):
        for start, r, leave in todo:
            if time == start:
                driver.add(r)
            if time == leave and leave % 3 == 0 and driver.core.cancel(r.id):
                cancelled.add(r.id)
        driver.step()
        if not driver.core.has_work and time > 100:
            break
    assert driver.n_available == n_pages
    for _, r, _ in todo:
        alone = expected_tokens(make_driver, r)
        if r.id in cancelled:
            assert r.finish_reason == "cancelled"
            assert r.output_tokens == alone[: r.num_generated]
        else:
            assert r.output_tokens == alone


def test_drafts_that_are_right_save_steps_and_change_nothing(make_driver: MakeDriver) -> None:
    """Three in four are right here; the rows of drafts need outputs, of which a step has eight."""
    guesser = Guesser(make_driver, luck=3)
    driver = make_driver(max_running=8, speculator=guesser)
    r = request(range(10), max_tokens=40, temperature=1.0, seed=7)
    driver.run(r)
    assert r.output_tokens == expected_tokens(make_driver, r)
    assert len(driver.backend.steps) < 25
    assert (r.num_drafted, r.num_accepted) == (guesser.num_drafted, guesser.num_accepted)
    assert 0 < r.num_accepted < r.num_drafted


def test_drafts_never_outrun_the_answer(make_driver: MakeDriver) -> None:
    """An answer of 3 tokens has one event with all of them, and the drafts behind its end are not verified."""
    driver = make_driver(max_running=8, speculator=Guesser(make_driver, luck=99))
    r = request(range(10), max_tokens=3)
    driver.run(r)
    assert [len(event.tokens) for event in driver.events[r.id]] == [1, 2]
    assert r.num_drafted == 1


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_drafts_may_be_taken_by_rates_alone(make_driver: MakeDriver, rate: float) -> None:
    """For measurements: all of them are right, or none, whatever the model says."""
    guesser = Guesser(make_driver, luck=1)      # every second one is wrong
    driver = make_driver(max_running=8, speculator=guesser, synthetic_rates=(rate,) * 5)
    r = request(range(10), max_tokens=40, temperature=1.0, seed=7, ignore_eos=True)
    driver.run(r)
    assert r.num_drafted > 0
    assert r.num_accepted == rate * r.num_drafted
    assert (r.output_tokens == expected_tokens(make_driver, r)) == (rate == 0)


def test_control_tokens_show_where_they_are_wanted(make_driver: MakeDriver) -> None:
    """The one that ends an answer, too."""
    texts = []
    for shows_special in (False, True):
        driver = make_driver(shows_special=shows_special)
        r = request([5] * 3, ignore_eos=False, max_tokens=9, logit_bias={END: 1000})
        driver.run(r)
        texts.append(driver.text(r))
    assert texts == ["", "<end>"]


def test_requests_with_one_beginning_read_it_once(make_driver: MakeDriver) -> None:
    """Those that come while it is read wait for it, and others do not wait for them."""
    driver = make_driver(n_pages=32, max_batch_tokens=32, n_ctx=256)
    beginning = [7] * 128
    same = [request([*beginning, i]) for i in range(3)]
    other = request([9] * 20)
    driver.run(*same, other)
    assert [r.num_cached for r in same] == [0, 128, 128]
    assert other.num_cached == 0
    assert sum(len(s.tokens) for step in driver.backend.steps for s in step) < 128 + 20 + 4 * 10


def test_a_request_with_higher_priority_takes_a_seat(make_driver: MakeDriver) -> None:
    """The one that gives way goes on afterwards, and its stream has no gap and nothing twice."""
    driver = make_driver(max_running=1)
    low, high = request([1] * 5, max_tokens=6), Request([2] * 5, request([1], max_tokens=3).params, priority=1)
    driver.add(low)
    driver.step()
    driver.add(high)
    ends = [event.request_id for events in driver.steps_left() for event in events if event.finish_reason]
    assert ends == [high.id, low.id]
    assert low.num_preempted == 1
    for r in (low, high):
        assert r.output_tokens == expected_tokens(make_driver, r)
        assert sum(len(event.tokens) for event in driver.events[r.id]) == len(r.output_tokens)


def test_a_request_whose_time_is_up_ends_with_an_error(make_driver: MakeDriver) -> None:
    """Waiting or running; what it computed is there for others."""
    driver = make_driver(max_running=1)
    running, waiting, other = request(range(40)), request(range(40)), request(range(40))
    for r in (running, waiting, other):
        driver.add(r)
    driver.step()
    running.deadline_s = waiting.deadline_s = 0.0
    events = driver.step()
    assert [(event.request_id, type(event.error).__name__) for event in events] == [
        (running.id, "DeadlineError"), (waiting.id, "DeadlineError")]
    for _ in driver.steps_left():
        pass
    assert (other.num_cached, other.finish_reason) == (16, "length")


def test_a_full_queue_refuses(make_driver: MakeDriver) -> None:
    """Nothing of the refused request stays."""
    driver = make_driver(max_queue=2)
    driver.add(request([1]))
    driver.add(request([1]))
    with pytest.raises(QueueFullError, match="2 requests are waiting already"):
        driver.add(request([1]))
    for _ in driver.steps_left():
        pass
    assert len(driver.events) == 2


def test_the_shortest_prompt_goes_first_but_a_long_wait_counts(make_driver: MakeDriver) -> None:
    """A second of waiting makes up for 500 tokens."""
    for waited_s, expected in ((0.0, [20, 12]), (1.0, [32])):
        driver = make_driver(n_pages=32, max_batch_tokens=32, n_ctx=256)
        long, short = request([1] * 200), request([2] * 20)
        driver.add(long)
        driver.step()
        long.added_s -= waited_s
        driver.add(short)
        driver.step()
        assert [len(s.tokens) for s in driver.backend.steps[-1]] == expected


@pytest.mark.parametrize("pooling", ["none", "mean", "cls", "last", "rank"])
def test_texts_share_steps_and_get_the_vectors_that_they_get_alone(make_driver: MakeDriver, pooling: Pooling) -> None:
    """Texts of 3, 40 and 5 tokens take the steps that 16 rows and 4 outputs allow; pages are free afterwards."""
    texts = [[1, 2, 3], list(range(40)), [5] * 5]
    driver = make_driver(max_batch_tokens=16, max_running=4)
    together = whole(driver.core.embed(texts, pooling))
    assert driver.n_available == 8
    alone = [whole(make_driver(max_batch_tokens=64, max_running=64).core.embed([text], pooling))[0] for text in texts]
    assert all(map(np.array_equal, together, alone))
    if pooling == "last":
        assert [len(step) for step in driver.backend.steps] == [2, 1, 2]
    assert [len(rows) for rows in together] == ([3, 40, 5] if pooling == "none" else [1, 1, 1])


def test_texts_that_do_not_fit_together_take_turns(make_driver: MakeDriver) -> None:
    """Two calls of which each needs all pages, in parts that alternate, both come to their end."""
    driver = make_driver(n_pages=4, max_batch_tokens=16)
    calls = [driver.core.embed([[token] * 128], "last") for token in (1, 2)]
    results: dict[int, list[Float32]] = {}
    for _ in range(100):
        for i, call in enumerate(calls):
            if i not in results:
                try:
                    next(call)
                except StopIteration as end:
                    results[i] = end.value
    for i, token in enumerate((1, 2)):
        expected = whole(make_driver(n_pages=4).core.embed([[token] * 128], "last"))
        assert np.array_equal(results[i][0], expected[0])


def test_a_request_may_tell_how_far_its_prompt_is_read(make_driver: MakeDriver) -> None:
    """What the cache has comes first, then what each step adds; the token comes by itself."""
    driver = make_driver()
    driver.run(request(range(10)))
    r = request([*range(10), *range(20, 50)], max_tokens=1)
    r.tells_progress = True
    driver.run(r)
    assert [(event.num_read, len(event.tokens)) for event in driver.events[r.id]] == [
        (10, 0), (26, 0), (40, 0), (None, 1)]


def test_a_shifted_context_keeps_its_beginning_and_its_end(make_driver: MakeDriver) -> None:
    """Of 64 tokens the first 4 stay, and the later half of the others; the answer goes on."""
    driver = make_driver(n_ctx=64)
    r = request(range(40), max_tokens=50)
    r.context_shift = ContextShift(n_keep=4)
    before: list[int] = []
    driver.add(r)
    for _ in driver.steps_left():
        if r.num_discarded:
            break
        before = list(r.tokens)
    assert r.tokens[:4] == [0, 1, 2, 3]
    assert r.tokens[4:-1] == before[-29:]
    assert r.num_discarded == 30
    for _ in driver.steps_left():
        pass
    assert (r.num_generated, r.finish_reason) == (50, "length")


def test_texts_that_are_embedded_count_as_read(make_driver: MakeDriver) -> None:
    """As prompts are, but nothing is generated."""
    driver = make_driver()
    whole(driver.core.embed([range(5), range(7)], "mean"))
    metrics = driver.core.metrics
    assert (metrics.prompt.n_tokens, metrics.n_predicted) == (12, 0)
    assert sum(metrics.step_s.counts) == len(driver.backend.steps)


def test_events_say_when_their_request_was_taken_up(make_driver: MakeDriver) -> None:
    """Which is before its first token, and stays so."""
    driver = make_driver()
    r = request(range(5), max_tokens=3)
    driver.run(r)
    events = driver.events[r.id]
    assert r.admitted_s is not None
    assert [event.admitted_s for event in events] == [r.admitted_s] * 3
    assert r.added_s <= r.admitted_s < events[0].time_s
