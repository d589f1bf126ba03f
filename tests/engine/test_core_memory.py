"""Requests whose pages run out: who waits, who gives way, and when pages are free again."""

import weakref

import pytest

from ggpy.errors import ConfigError
from tests.engine.driving import MakeDriver, expected_tokens, request


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


def test_what_chooses_the_tokens_of_a_request_goes_with_it(make_driver: MakeDriver) -> None:
    """Whether it ends, is cancelled, is late, or all is forgotten."""
    driver = make_driver()
    for end in ("stop", "cancel", "deadline", "reset"):
        r = request([1] * 5, max_tokens=3)
        generation = driver.core.prepare(r)
        assert generation.sampler.has_steady_row
        sampler = weakref.ref(generation.sampler)
        driver.core.add(generation)
        del generation
        driver.step()
        assert r.num_generated == 1
        if end == "cancel":
            driver.core.cancel(r.id)
        elif end == "reset":
            driver.core.reset()
        else:
            r.deadline_s = 0.0 if end == "deadline" else None
            for _ in driver.steps_left():
                pass
        assert sampler() is None, end


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
