"""Who is served when, who gives way to whom, and that all are served in the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request

MakeDriver = Callable[..., Any]


def request(n: int, max_tokens: int = 4, *, token: int = 1, priority: int = 0) -> Request:
    """A prompt of `n` times `token`."""
    return Request([token] * n, SamplingParams(temperature=0, ignore_eos=True, max_tokens=max_tokens),
                   priority=priority)


class Drafter:
    """Drafts the same tokens for everyone."""

    def __init__(self, *drafts: int) -> None:
        self.drafts = drafts

    def draft(self, requests: list[Request]) -> None:
        for r in requests:
            r.draft_tokens = self.drafts

    def reset(self) -> None:
        pass

    def saw(self, r: Request, n_drafted: int, n_accepted: int, step_s: float | None) -> None:
        pass

    def finished(self, r: Request) -> None:
        pass


def chunks(driver: Any) -> list[tuple[int, int]]:
    """The first position and the number of rows of each chunk of the last step."""
    return [(s.first_position, len(s.tokens)) for s in driver.backend.steps[-1]]


def test_seats_go_to_the_highest_priority_and_then_to_the_oldest(make_driver: MakeDriver) -> None:
    """One seat: the order in which requests end."""
    driver = make_driver(max_running=1)
    waiting = [request(5, token=i, priority=priority) for i, priority in enumerate((0, 0, 2, 1, 2))]
    for r in waiting:
        driver.add(r)
    ends = [event.request_id for events in driver.steps_left() for event in events if event.finish_reason]
    assert ends == [waiting[i].id for i in (2, 4, 3, 0, 1)]


def test_generating_goes_before_reading(make_driver: MakeDriver) -> None:
    """However much a prompt of higher priority has to read."""
    driver = make_driver(max_batch_tokens=16)
    driver.add(request(5, token=1))
    driver.step()
    driver.add(request(60, token=2, priority=1))
    driver.step()
    assert chunks(driver) == [(5, 1), (0, 15)]


def test_a_prompt_of_higher_priority_is_read_first(make_driver: MakeDriver) -> None:
    """Even if it is longer."""
    driver = make_driver(max_batch_tokens=16)
    short, long = request(40, token=1), request(60, token=2, priority=1)
    driver.add(short)
    driver.step()
    driver.add(long)
    driver.step()
    assert (short.num_computed, long.num_computed) == (16, 16)


def test_nobody_waits_for_a_lower_priority_to_read_what_both_need(make_driver: MakeDriver) -> None:
    """Among equals the second one does."""
    for priority, running in ((0, 1), (1, 2)):
        driver = make_driver(n_pages=16, max_batch_tokens=16)
        driver.add(request(100))
        driver.step()
        driver.add(request(100, priority=priority))
        driver.step()
        assert len(driver.core.scheduler.running) == running


def test_nobody_gives_way_to_guesses(make_driver: MakeDriver) -> None:
    """Both requests have a page, and drafts of the first would need another; the second ends before it is needed."""
    driver = make_driver(n_pages=2, n_ctx=64, max_batch_tokens=64, max_running=8, speculator=Drafter(1, 1, 1, 1))
    first, second = request(30, max_tokens=20, token=1), request(20, max_tokens=3, token=2)
    driver.run(first, second)
    assert (first.num_preempted, second.num_preempted) == (0, 0)
    assert first.num_drafted > 0


def test_guesses_go_without_rows_that_others_generate_in(make_driver: MakeDriver) -> None:
    """Three requests share a step of five rows: the oldest one has the two that are left."""
    driver = make_driver(max_batch_tokens=5, max_running=5, speculator=Drafter(1, 1, 1, 1))
    for token in range(3):
        driver.add(request(1, max_tokens=9, token=token))
    driver.step()
    driver.step()
    assert [n for _, n in chunks(driver)] == [3, 1, 1]


def test_a_request_gets_no_seat_before_windows_have_pages_for_it_too(make_driver: MakeDriver) -> None:
    """The pool of the window has pages for one request that reads: the other is not sent back and forth."""
    driver = make_driver(n_pages=(16, 3), windows=(None, 16), max_batch_tokens=32)
    first, second = request(90, max_tokens=30, token=1), request(90, max_tokens=30, token=2)
    driver.run(first, second)
    assert driver.core.scheduler.num_preempted == 0
    assert first.num_generated == second.num_generated == 30


def test_a_stream_of_short_prompts_does_not_keep_a_long_one_waiting(make_driver: MakeDriver) -> None:
    """Each second brings a prompt of 16 tokens, which fill a step; the long one makes up for its length in time."""
    driver = make_driver(n_pages=64, n_ctx=1024, max_batch_tokens=16, max_running=4)
    scheduler, long = driver.core.scheduler, request(600, max_tokens=1, token=1)
    long.added_s = 0.0
    scheduler.add(long)
    for second in range(60):
        short = request(16, token=2 + second % 50)
        short.added_s = float(second)
        scheduler.add(short)
        for chunk in scheduler.schedule(float(second)):
            if chunk.request is long:
                assert second < 3
                return
            scheduler.remove(chunk.request)
    pytest.fail("it was never read")


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_who_ranks_first_ends_within_the_steps_that_it_needs(make_driver: MakeDriver, data: st.DataObject) -> None:
    """Whoever else comes, at lower or equal priority: it reads a full step's rows at a time, and then one by one."""
    max_batch_tokens = data.draw(st.integers(12, 40))
    driver = make_driver(n_pages=data.draw(st.integers(4, 12)), max_batch_tokens=max_batch_tokens, max_running=4)
    n_answer = data.draw(st.integers(1, 30))
    first = request(data.draw(st.integers(1, 90)), n_answer, priority=1)
    driver.add(first)
    # three others generate in rows of the same step at most
    most_steps = -(-len(first.prompt_tokens) // (max_batch_tokens - 3)) + n_answer
    for _ in range(most_steps):
        if data.draw(st.booleans()):
            driver.add(request(data.draw(st.integers(1, 90)), max_tokens=data.draw(st.integers(1, 30)),
                               token=data.draw(st.integers(1, 4)), priority=data.draw(st.integers(-1, 0))))
        driver.step()
    assert first.state == "finished"
    assert first.num_preempted == 0


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 90), st.integers(1, 35), st.integers(0, 3), st.integers(-1, 1)), min_size=2,
                max_size=12), st.integers(4, 8), st.integers(4, 40), st.sampled_from([(None,), (None, 20), (16, 40)]))
def test_each_step_brings_somebody_on(
    make_driver: MakeDriver, asked: list[tuple[int, int, int, int]], n_pages: int, max_batch_tokens: int,
    windows: tuple[int | None, ...],
) -> None:
    """Whoever ranks first of those who are there: all end, within as many steps as they would need one by one."""
    driver = make_driver(n_pages=n_pages, max_batch_tokens=max_batch_tokens, windows=windows)
    live = [request(n, most, token=token, priority=priority) for n, most, token, priority in asked]
    for r in live:
        driver.add(r)
    n_alone = sum(-(-n // max(1, max_batch_tokens - 3)) + most for n, most, _, _ in asked)
    n_steps = sum(1 for _ in driver.steps_left())
    assert n_steps <= n_alone
    assert all(r.finish_reason == "length" for r in live)
