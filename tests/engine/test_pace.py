"""Steps stay short where they vary."""

import pytest

from ggpy.engine.pace import Pace


def seen(*durations_ms: float) -> Pace:
    """A pace for steps of 80 ms that has seen steps of 64 rows."""
    pace = Pace(80)
    for duration_ms in durations_ms:
        pace.saw(64, duration_ms / 1000)
    return pace


@pytest.mark.parametrize(("slow_ms", "rows"), [(64, 80), (76.8, 80), (96, 64), (640, 64)])
def test_steps_are_planned_shorter_where_some_take_longer_than_expected(slow_ms: float, rows: int) -> None:
    """1 ms a row: a fifth more hardly counts, half as much again would be 120 ms, and more cannot be planned for."""
    assert seen(64, slow_ms, *[64] * 20).rows(512, 1) == pytest.approx(rows, abs=8)


def test_steps_need_not_have_the_same_rows_to_show_that_they_vary() -> None:
    """64 rows and 72, in turns: 8 rows hardly change what a row takes; one of the steps took half as much again."""
    pace = seen(64)
    pace.saw(72, 0.108)
    for _ in range(10):
        pace.saw(64, 0.064)
        pace.saw(72, 0.072)
    assert pace.rows(512, 1) <= 64


def test_a_machine_that_is_steady_again_is_trusted_again() -> None:
    """It takes some time."""
    assert seen(64, 96, *[64] * 20).rows(512, 1) < seen(64, 96, *[64] * 200).rows(512, 1) == 80


def test_rows_of_larger_steps_are_not_unexpectedly_slow() -> None:
    """Each row costs more in a small step, which says nothing about how steady the machine is."""
    pace = seen(64)
    pace.saw(8, 0.016)
    for _ in range(20):
        pace.saw(64, 0.064)
    assert pace.rows(512, 1) >= 76


def test_who_has_nobody_waiting_reads_in_long_steps_all_the_same() -> None:
    """Nobody waits for the end of these."""
    assert seen(64, 96, *[64] * 20).rows(512, 0) == pytest.approx(320, abs=4)
