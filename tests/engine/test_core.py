"""The engine's loop: what runs in a step, and that its company changes nobody's answer."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ggpy.engine.request import Request
from ggpy.engine.sampling import Sampler
from ggpy.errors import GrammarError
from tests.engine.driving import Guesser, MakeDriver, expected_tokens, request, step_shape


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


def test_no_more_requests_run_than_can_generate_in_one_step(make_driver: MakeDriver) -> None:
    """So that all that generate get a token in each step."""
    driver = make_driver(max_batch_tokens=2, max_running=4)
    for _ in range(3):
        driver.add(request([1], max_tokens=3))
    sizes = [len(events) for events in driver.steps_left()]
    assert sizes == [2, 2, 2, 1, 1, 1]


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
