"""An answer whose reasoning was ended is two requests to the engine, and tells of both."""

from __future__ import annotations

import time

import pytest

from ggpy.server.chat.reasoning import ReasoningLimit, joined, rest_of
from ggpy.server.jobs.generation import Answer, Delta, Job
from ggpy.server.model_pool.slots import Task


def answer(n_drafted: int, n_accepted: int) -> Answer:
    return Answer(0, 3, 256, Task((1, 2, 3)), n_drafted=n_drafted, n_accepted=n_accepted)


def test_drafts_before_the_limit_count() -> None:
    """The second request counts its own from 0."""
    whole = answer(40, 30)
    for drafted, accepted in ((1, 0), (2, 1)):
        joined(whole, Delta(answer(drafted, accepted), "a", (7,)), (40, 30))
    assert (whole.n_drafted, whole.n_accepted, whole.text, whole.tokens) == (42, 31, "aa", [7, 7])


def test_time_and_tokens_before_the_limit_are_used_up() -> None:
    """What is left of them holds behind it."""
    whole = answer(0, 0)
    whole.tokens, whole.first_s = [5, 6], time.perf_counter() - 2
    job = Job(tokens=[1, 2, 3], max_predict_s=10.0)
    rest = rest_of(job, whole, ReasoningLimit("</think>"))
    assert rest.max_predict_s == pytest.approx(8, abs=1)
    assert list(rest.tokens) == [1, 2, 3, 5, 6]
    assert rest_of(Job(tokens=[1]), whole, ReasoningLimit("</think>")).max_predict_s is None
