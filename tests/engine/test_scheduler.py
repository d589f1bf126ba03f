"""How long the steps are that read prompts."""

from collections.abc import Callable
from typing import Any

import pytest

from ggpy.engine.config import EngineConfig, SamplingParams
from ggpy.engine.pace import Pace
from ggpy.engine.request import ContextShift, Request
from ggpy.errors import ConfigError


def test_the_first_step_is_small_and_shows_what_the_machine_can() -> None:
    """1 ms a row: 90 of them make a step of 90 ms."""
    pace = Pace(90)
    assert pace.rows(512, 1) == 64
    pace.saw(64, 0.064)
    assert pace.rows(512, 1) == 90


def test_steps_are_longer_while_nobody_generates() -> None:
    """Four times as long: only those who come or leave wait for their end."""
    pace = Pace(50)
    pace.saw(64, 0.064)
    assert (pace.rows(512, 1), pace.rows(512, 0)) == (50, 200)


def test_steps_are_longer_while_several_prompts_wait() -> None:
    """A third: answers go on a little slower, and the first tokens of all come sooner. One prompt changes nothing."""
    pace = Pace(80)
    pace.saw(64, 0.064)
    assert [pace.rows(512, 1, n_reading) for n_reading in (0, 1, 2, 9)] == [80, 80, 106, 106]
    assert pace.rows(512, 0, 2) == pace.rows(512, 0, 1) == 320


@pytest.mark.parametrize(("row_ms", "rows"), [(0.01, 512), (0.4, 500), (1, 200), (20, 10), (100, 8)])
def test_steps_have_at_least_8_rows_and_at_most_a_batch(row_ms: float, rows: int) -> None:
    """A slow machine would lose more with smaller ones than anybody gains."""
    pace = Pace(200)
    pace.saw(64, 64 * row_ms / 1000)
    assert pace.rows(512, 1) == rows
    assert pace.rows(6, 1) == 6


def test_one_slow_step_does_not_last() -> None:
    """The machine slept: the next steps find the way back."""
    pace = Pace(200)
    for duration_s in (0.064, 60.0):
        pace.saw(64, duration_s)
    assert pace.rows(512, 1) == 8
    for _ in range(12):
        pace.saw(64, 0.064)
    assert pace.rows(512, 1) >= 128


def test_steps_that_generate_say_nothing_about_prompts() -> None:
    """A row costs more in them, since each reads all weights."""
    pace = Pace(200)
    pace.saw(64, 0.064)
    pace.saw(1, 0.05)
    assert pace.rows(512, 1) == 200


def test_without_a_target_steps_are_as_large_as_the_batch() -> None:
    """Nothing is learnt."""
    pace = Pace(0)
    pace.saw(64, 60)
    assert pace.rows(512) == 512


@pytest.mark.parametrize("step_ms", [-1, float("nan"), float("inf")])
def test_a_target_is_a_time(step_ms: float) -> None:
    """0 stands for none."""
    with pytest.raises(ConfigError, match=r"step_ms=.*: expected milliseconds, or 0"):
        EngineConfig(n_ctx=64, step_ms=step_ms)


def request(n: int, max_tokens: int = 9) -> Request:
    return Request([i % 50 for i in range(n)], SamplingParams(temperature=0, ignore_eos=True, max_tokens=max_tokens))


@pytest.mark.parametrize(("n_generating", "row_s", "n_read"), [
    (3, None, 61), (3, 0.001, 197), (3, 1.0, 8), (40, 1.0, 8),
])
def test_prompts_are_read_at_the_machines_pace(
    make_driver: Callable[..., Any], n_generating: int, row_s: float | None, n_read: int
) -> None:
    """Requests that generate all go on, and a prompt gets what they leave, but 8 rows at least."""
    driver = make_driver(n_pages=128, n_ctx=512, max_batch_tokens=256, max_running=64)
    for _ in range(n_generating):
        driver.add(request(1, max_tokens=99))
    driver.step()
    pace = driver.core.scheduler.pace = Pace(200)
    pace._row_s = row_s
    driver.add(request(300))
    driver.step()
    assert [len(s.tokens) for s in driver.backend.steps[-1]] == [*[1] * n_generating, n_read]


def test_prompts_that_wait_side_by_side_share_a_longer_step(make_driver: Callable[..., Any]) -> None:
    """1 ms a row: 80 of them are a step, 106 with two prompts, of which the shorter one is read first."""
    driver = make_driver(n_pages=128, n_ctx=512, max_batch_tokens=256, max_running=64)
    driver.add(request(1, max_tokens=99))
    driver.step()
    driver.core.scheduler.pace = Pace(80)
    driver.core.scheduler.pace.saw(64, 0.064)
    driver.add(request(300))
    driver.add(Request([9] * 40))
    driver.step()
    assert [len(s.tokens) for s in driver.backend.steps[-1]] == [1, 40, 65]


def test_the_pace_changes_no_token(make_driver: Callable[..., Any]) -> None:
    """Here every step has another size."""
    whole, paced = request(300), request(300)
    make_driver(n_pages=16, n_ctx=512, max_batch_tokens=512).run(whole)
    driver = make_driver(n_pages=16, n_ctx=512, max_batch_tokens=512)
    pace = driver.core.scheduler.pace = Pace(200)
    driver.add(paced)
    for row_s in (0.012, 0.008, 0.005, 0.002):
        pace._row_s = row_s
        driver.step()
    for _ in driver.steps_left():
        pass
    assert [len(step[0].tokens) for step in driver.backend.steps[:4]] == [66, 100, 134, 1]
    assert paced.output_tokens == whole.output_tokens


@pytest.mark.parametrize("state", ["new", "waiting", "running", "preempted", "finished"])
def test_a_request_can_be_removed_in_any_state_and_twice(make_driver: Callable[..., Any], state: str) -> None:
    """It holds no pages then."""
    driver = make_driver(n_pages=4)
    scheduler, r = driver.core.scheduler, request(60)
    if state != "new":
        scheduler.add(r)
    if state in ("running", "preempted", "finished"):
        scheduler.schedule(0.0)
    if state == "preempted":
        scheduler.make_room(lambda: not scheduler.running)
    if state == "finished":
        scheduler.remove(r)
    for _ in range(2):
        scheduler.remove(r)
        driver.check_pages()
    assert (r.state, r.kv, scheduler.schedule(0.0)) == ("finished", None, [])


def test_a_request_that_shares_pages_needs_fewer(make_driver: Callable[..., Any]) -> None:
    """Of 8 pages 5 are held; it would need 5, but 4 of them are those of the other one."""
    driver = make_driver(n_pages=8, n_ctx=256, max_batch_tokens=128)
    first = Request([1] * 128, SamplingParams(temperature=0, ignore_eos=True, max_tokens=9))
    driver.add(first)
    driver.step()
    stranger, friend = (Request([token] * 128 + [3] * 10, first.params) for token in (2, 1))
    driver.add(stranger)
    driver.step()
    assert stranger.state == "waiting"
    driver.core.cancel(stranger.id)
    driver.add(friend)
    driver.step()
    assert (friend.state, friend.num_cached) == ("running", 128)


def test_a_prompt_that_waits_is_not_looked_up_in_each_step(
    make_driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be long, and steps are short."""
    driver = make_driver(n_pages=8, n_ctx=256, max_batch_tokens=128)
    driver.add(Request([1] * 128, SamplingParams(temperature=0, ignore_eos=True, max_tokens=40)))
    driver.step()
    looked_up: list[tuple[Any, ...]] = []
    find = driver.core.cache.find

    def noted(*args: Any) -> Any:
        looked_up.append(args)
        return find(*args)

    monkeypatch.setattr(driver.core.cache, "find", noted)
    waiting = request(200)
    driver.add(waiting)
    for _ in range(10):
        driver.step()
    assert waiting.state == "waiting"
    assert looked_up == []


@pytest.mark.parametrize(("keeps", "n_cached"), [(((60, 60.0),), 59), (((7, 60.0), (3, 60.0)), 32), ((), 0)])
def test_a_request_may_want_its_pages_kept(
    make_driver: Callable[..., Any], keeps: tuple[tuple[int, float], ...], n_cached: int
) -> None:
    """Those of its beginning, in whole pages: then others go first that were used after it."""
    driver = make_driver(n_pages=8, n_ctx=192)
    first, again = request(60, max_tokens=1), request(60, max_tokens=1)
    first.keeps = keeps
    others = [Request([50 + n] * 90, SamplingParams(temperature=0, max_tokens=1)) for n in range(3)]
    for r in (first, *others, again):
        driver.run(r)
    assert again.num_cached == n_cached


def test_a_long_answer_leaves_what_a_window_needs_of_the_prompt(make_driver: Callable[..., Any]) -> None:
    """Window pages of prompt and answer are more than there are; the prompt's first two are to be kept."""
    driver = make_driver(n_pages=(16, 6), n_ctx=320, windows=(None, 40))
    first, again = request(70, max_tokens=240), request(70, max_tokens=1)
    first.keeps = ((64, 60.0),)
    driver.run(first)
    driver.run(again)
    assert again.num_cached == 64


def test_what_a_context_shift_puts_in_place_of_a_prompt_is_not_kept(make_driver: Callable[..., Any]) -> None:
    """Only the prompt itself is, which somebody wanted kept."""
    driver = make_driver(n_pages=8, n_ctx=64)
    shifted = request(40, max_tokens=40)
    shifted.keeps, shifted.context_shift = ((40, 60.0),), ContextShift(n_keep=4)
    driver.run(shifted)
    assert shifted.num_discarded
    for n in range(4):
        driver.run(Request([50 + n] * 60, SamplingParams(temperature=0, max_tokens=1)))
    prompt = shifted.prompt_tokens
    assert [tokens[:40] for _, tokens in driver.core.cache.paths() if tokens[:4] == prompt[:4]] == [prompt]
