"""Logits and vectors of texts: the steps they take, and what they share with requests."""

import numpy as np
import pytest

from ggpy.arrays import Float32
from ggpy.engine.config import Pooling
from ggpy.errors import OutOfMemoryError, PromptTooLongError
from tests.engine.conftest import N_VOCAB, whole
from tests.engine.driving import MakeDriver, expected_tokens, request


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


def test_texts_that_are_embedded_count_as_read(make_driver: MakeDriver) -> None:
    """As prompts are, but nothing is generated."""
    driver = make_driver()
    whole(driver.core.embed([range(5), range(7)], "mean"))
    metrics = driver.core.metrics
    assert (metrics.prompt.n_tokens, metrics.n_predicted) == (12, 0)
    assert sum(metrics.step_s.counts) == len(driver.backend.steps)
