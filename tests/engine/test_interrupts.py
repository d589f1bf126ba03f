"""Ctrl-C at any moment ends what its thread waits for, and leaves everything else as it was."""

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest

from ggpy.engine.client import CompletionStream, EngineClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timer that interrupts")

N_INTERRUPTS = 300


class Interrupts:
    """Signals that raise KeyboardInterrupt wherever the main thread is, once for each time that it asks for one."""

    def __init__(self) -> None:
        self.is_due = False
        self.random = random.Random(1)

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_due:
            self.is_due = False
            raise KeyboardInterrupt

    def storm(self, work: Callable[[], Any], longest_s: float = 0.004) -> None:
        """Repeat `work` until it is interrupted, many times. An interrupt within a finalizer ends a round silently."""
        for _ in range(N_INTERRUPTS):
            with contextlib.suppress(KeyboardInterrupt):
                self.is_due = True
                signal.setitimer(signal.ITIMER_REAL, self.random.uniform(1e-5, longest_s))
                while self.is_due:
                    work()


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    """The timer's signal is put back afterwards."""
    interrupts = Interrupts()
    previous = signal.signal(signal.SIGALRM, interrupts.handle)
    yield interrupts
    interrupts.is_due = False
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


@pytest.fixture
def driver(make_driver: Callable[..., Any]) -> Any:
    """The Driver of conftest.py, with little memory."""
    return make_driver(n_pages=10, n_ctx=256)


@pytest.fixture
def client(driver: Any) -> Iterator[EngineClient]:
    client = EngineClient(driver.core)
    yield client
    client.close()


def submit(client: EngineClient, n_prompt: int, max_tokens: int) -> CompletionStream:
    """Greedy and without an end of its own."""
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=max_tokens)
    return client.submit(Request([i % 60 for i in range(n_prompt)], params))


def check_that_all_is_well(driver: Any, client: EngineClient, expected: list[int]) -> None:
    """Requests that were interrupted have gone, every page is free or held by who says so, and answers are the same."""
    while driver.core.has_work:
        client.logits([1], 1)
    driver.check_pages()
    assert driver.n_available == 10
    assert submit(client, 40, 8).finish().tokens == expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")      # interrupts within finalizers
def test_interrupts_at_any_moment_leave_the_engine_as_it_was(
    driver: Any, client: EngineClient, interrupts: Interrupts
) -> None:
    """Those that come while requests are made, queued, awaited, read in part and dropped, and while logits are."""
    expected = submit(client, 40, 8).finish().tokens
    logits = client.logits(list(range(40)), 3)

    def work() -> None:
        assert submit(client, 40, 8).finish().tokens == expected
        next(submit(client, 70, 100))
        assert np.array_equal(client.logits(list(range(40)), 3), logits)

    interrupts.storm(work)
    check_that_all_is_well(driver, client, expected)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_take_nothing_from_other_threads(
    driver: Any, client: EngineClient, interrupts: Interrupts
) -> None:
    """Theirs go on to the end, each with its own tokens."""
    expected = submit(client, 40, 8).finish().tokens
    over = threading.Event()
    answers: list[list[int]] = []

    def read() -> None:
        while not over.is_set():
            answers.append(submit(client, 40, 8).finish().tokens)

    readers = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for reader in readers:
        reader.start()
    interrupts.storm(lambda: submit(client, 60, 50).finish())
    over.set()
    for reader in readers:
        reader.join(30)
        assert not reader.is_alive()
    assert answers
    assert all(answer == expected for answer in answers)
    check_that_all_is_well(driver, client, expected)


def test_an_interrupt_cancels_the_answer_that_is_waited_for(
    driver: Any, client: EngineClient, interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, though the step goes on, and though something, such as a traceback, still holds the stream."""
    forward, opened = driver.backend.forward, threading.Event()

    def stuck(sequences: Any) -> Any:
        interrupts.is_due = True
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert opened.wait(30)
        return forward(sequences)

    monkeypatch.setattr(driver.backend, "forward", stuck)
    stream = submit(client, 5, 200)
    with pytest.raises(KeyboardInterrupt):
        stream.finish()
    monkeypatch.setattr(driver.backend, "forward", forward)
    opened.set()
    client.logits([1], 1)
    assert not driver.core.has_work
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_closing_can_be_interrupted_and_repeated(make_driver: Callable[..., Any], interrupts: Interrupts) -> None:
    """The backend is freed once, whoever comes to it."""
    def work() -> None:
        closed: list[bool] = []
        driver = make_driver()
        driver.backend.close = lambda: closed.append(True)
        client = EngineClient(driver.core)
        stream = submit(client, 5, 50)
        try:
            client.close()
        finally:
            client.close()
            assert closed == [True]
        stream.close()

    work()      # loads kernels, too
    interrupts.storm(work, longest_s=0.002)
    work()
