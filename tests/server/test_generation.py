"""What answers tell of themselves."""

from __future__ import annotations

import pytest

from ggpy.engine.messages import Tokens
from ggpy.server.jobs.generation import Answer, Job, take
from ggpy.server.model_pool.slots import Task
from tests.server.conftest import Served


def test_the_time_of_a_prompt_is_without_that_in_the_queue(server: Served) -> None:
    """Nor is compiling a part of it: it begins when the engine takes the request up."""
    model = server.server.models.single.loaded
    assert model is not None
    answer = Answer(0, 4, 256, Task((40, 41, 42, 43)), start_s=1.0)
    event = Tokens(1, tokens=(44,), num_cached=1, time_s=9.5, admitted_s=9.25)
    take(answer, event, model, Job(tokens=(40, 41, 42, 43)))
    timings = answer.timings()
    assert (timings["prompt_n"], timings["prompt_ms"]) == (3, pytest.approx(250))
