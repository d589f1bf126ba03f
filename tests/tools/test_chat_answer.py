"""Answers that another thread computes: whoever waits for one can stop at any time."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from ggpy import Completion, Timings
from ggpy.errors import PromptTooLongError
from ggpy.tools.chat_answer import Answer


class SlowStream:
    """Says "one ", and "two" once the step that brings it may end; closing it does not end the step."""

    def __init__(self) -> None:
        self.reached, self.step = threading.Event(), threading.Event()
        self.said = ""
        self.closed = False

    def __iter__(self) -> Iterator[str]:
        self.said = "one "
        yield "one "
        self.reached.set()
        assert self.step.wait(30)
        self.said = "one two"
        if not self.closed:
            yield "two"

    def close(self) -> None:
        self.closed = True

    @property
    def completion(self) -> Completion:
        return Completion(self.said, [0] * len(self.said), "cancelled" if self.closed else "stop",
                          Timings(3, len(self.said), 0.0, 0.0))


def answer_of(stream: Any) -> Answer:
    return Answer(lambda: stream)


def test_pieces_come_in_order_and_the_completion_is_their_sum() -> None:
    """As from the stream itself."""
    stream = SlowStream()
    stream.step.set()
    answer = answer_of(stream)
    assert list(answer) == ["one ", "two"]
    assert answer.completion.text == "one two"


def test_stopping_does_not_wait_for_the_step_that_runs() -> None:
    """`join` does. What the step brings later is no part of the answer."""
    stream = SlowStream()
    answer = answer_of(stream)
    assert next(answer) == "one "
    assert stream.reached.wait(30)
    answer.stop()
    assert list(answer) == []
    assert answer.completion.text == "one "
    stream.step.set()
    answer.join()
    assert (stream.said, answer.completion.text) == ("one two", "one ")


def test_what_the_last_step_brought_is_shown_if_it_counts() -> None:
    """It came between the stop and the look at what there is: the user must see what the model will have said."""
    stream = SlowStream()
    answer = answer_of(stream)
    assert next(answer) == "one "
    assert stream.reached.wait(30)
    answer.stop()
    stream.step.set()
    answer._thread.join(30)
    assert list(answer) == ["two"]
    assert answer.completion.text == "one two"


def test_an_answer_can_be_stopped_before_its_request_is_taken() -> None:
    """A step of the answer before may still run; then the request is cancelled as soon as there is one."""
    opened, stream = threading.Event(), SlowStream()
    stream.step.set()

    def start() -> Any:
        assert opened.wait(30)
        return stream

    answer = Answer(start)
    answer.stop()
    assert list(answer) == []
    assert (answer.completion.finish_reason, answer.completion.tokens, answer.completion.n_prompt) == (
        "cancelled", [], 0)
    opened.set()
    answer.join()
    assert stream.closed


def test_an_error_reaches_who_reads() -> None:
    """Such as that of a prompt that is too long."""
    def start() -> Any:
        raise PromptTooLongError("too long")

    with pytest.raises(PromptTooLongError, match="too long"):
        next(Answer(start))
