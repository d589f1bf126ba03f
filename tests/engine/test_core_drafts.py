"""Drafts in the engine's loop: what they save, and that they change nothing."""

import pytest

from tests.engine.driving import Guesser, MakeDriver, expected_tokens, request


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


def test_a_request_that_has_just_come_finds_no_drafts_in_its_way(make_driver: MakeDriver) -> None:
    """Its prompt can use the rows: the step that admits it has one row for the answer, the next one drafts again."""
    driver = make_driver(max_running=8, max_batch_tokens=64, speculator=Guesser(make_driver, luck=99))
    driver.add(request(range(10), max_tokens=40))
    driver.step()
    driver.step()
    driver.add(request(range(30, 50), max_tokens=1))
    driver.step()
    driver.step()
    assert [[len(s.tokens) for s in step] for step in driver.backend.steps[1:]] == [[6], [1, 20], [6]]


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
