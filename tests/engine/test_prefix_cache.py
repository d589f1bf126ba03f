"""What was read before is not read again, to the exact token, and never at anyone's expense."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request

MakeDriver = Callable[..., Any]


def greedy(tokens: list[int], n: int = 4) -> Request:
    return Request(tokens, SamplingParams(temperature=0, ignore_eos=True, max_tokens=n))


def alone(make_driver: MakeDriver, request: Request) -> list[int]:
    """What the same request generates in an engine of its own."""
    same = Request(list(request.prompt_tokens), request.params)
    make_driver().run(same)
    return same.output_tokens


def test_the_next_turn_of_a_chat_reads_only_what_is_new(make_driver: MakeDriver) -> None:
    """40 tokens, an answer of 4 whose last is not computed, 10 new ones: 43 of 54 are there (pages of 32)."""
    driver = make_driver()
    first = greedy(list(range(40)))
    driver.run(first)
    second = greedy([*first.tokens, *range(10)])
    driver.run(second)
    assert (first.num_cached, second.num_cached) == (0, 43)
    assert second.output_tokens == alone(make_driver, second)


def test_a_prompt_that_was_there_before_computes_one_token(make_driver: MakeDriver) -> None:
    """The last token's logits are wanted, so it is computed again."""
    driver = make_driver()
    driver.run(greedy(list(range(50)), n=1))
    again = greedy(list(range(50)))
    driver.run(again)
    assert again.num_cached == 49


def test_an_early_branch_shares_whole_pages_and_leaves_the_rest_to_its_owner(make_driver: MakeDriver) -> None:
    """40 of 110 tokens in common: one page of 32 is shared, and the longer sequence stays whole."""
    driver = make_driver(n_pages=12)
    long = greedy([*range(60), *range(50)], n=1)
    driver.run(long)
    branch = greedy([*range(40), 7, 7, 7])
    driver.run(branch)
    back = greedy([*range(60), *range(50), 1, 2])
    driver.run(back)
    assert (branch.num_cached, back.num_cached) == (32, 110)
    assert branch.output_tokens == alone(make_driver, branch)
    assert back.output_tokens == alone(make_driver, back)


def test_a_page_that_two_share_is_not_written_to(make_driver: MakeDriver) -> None:
    """Someone reads the first page of a kept sequence while another continues from the middle of that page."""
    driver = make_driver(n_pages=12, max_batch_tokens=64)
    driver.run(greedy(list(range(40)), n=1))
    reader = greedy([*range(40), *([3] * 20)], n=30)
    writer = greedy([*range(20), *([9] * 20)], n=30)
    driver.run(reader, writer)
    assert reader.output_tokens == alone(make_driver, reader)
    assert writer.output_tokens == alone(make_driver, writer)


def test_kept_sequences_go_when_pages_are_needed(make_driver: MakeDriver) -> None:
    """The least recently used first, and the request never waits for them."""
    driver = make_driver(n_pages=4)
    driver.run(greedy([1] * 40, n=1))
    driver.run(greedy([2] * 40, n=1))
    driver.run(greedy([3] * 40, n=1))
    newest, oldest = greedy([3] * 41, n=1), greedy([1] * 41, n=1)
    driver.run(newest)
    driver.run(oldest)
    assert (newest.num_cached, oldest.num_cached) == (40, 0)


def test_what_a_failed_computation_left_is_not_kept(make_driver: MakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that ended in an error leaves no pages to the cache."""
    driver = make_driver()
    forward = driver.backend.forward
    monkeypatch.setattr(driver.backend, "forward", lambda sequences: forward(sequences) * float("nan"))
    driver.run(greedy([1] * 40))
    assert driver.core.pool.n_free == 8


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=3), min_size=1,
                max_size=8), st.integers(4, 12), st.integers(1, 40))
def test_any_history_leaves_every_answer_as_if_alone(
    make_driver: MakeDriver, prompts: list[list[tuple[int, int]]], n_pages: int, max_batch_tokens: int,
) -> None:
    """Prompts of a few runs of equal tokens, so that they share beginnings, two at a time."""
    driver = make_driver(n_pages=n_pages, max_batch_tokens=max_batch_tokens)
    requests = [greedy([token for token, n in runs for _ in range(n)], n=6) for runs in prompts]
    for pair in zip(requests[::2], [*requests[1::2], None], strict=False):
        driver.run(*(request for request in pair if request is not None))
    for request in requests:
        assert request.output_tokens == alone(make_driver, request)
