"""The client that threads share: who gets which event, and what closing, exceptions and forks do to those who wait."""

import gc
import os
import signal
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from ggpy.engine.client import CompletionStream, EngineClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request
from ggpy.engine.sampling import Sampler
from ggpy.errors import GgpyError, PromptTooLongError

MakeClient = Callable[..., EngineClient]


@pytest.fixture
def make_client(make_driver: Callable[..., Any]) -> MakeClient:
    """A client of an engine on the backend of conftest.py; its options are those of Driver."""
    return lambda **options: EngineClient(make_driver(**options).core)


def request(n_prompt: int = 5, max_tokens: int = 4) -> Request:
    """Greedy and without an end of its own."""
    params = SamplingParams(temperature=0, ignore_eos=True, max_tokens=max_tokens)
    return Request([i % 60 for i in range(n_prompt)], params)


class Reader(threading.Thread):
    """Reads a stream to its end in another thread."""

    def __init__(self, stream: CompletionStream) -> None:
        super().__init__(daemon=True)
        self.stream = stream
        self.pieces: list[str] = []
        self.start()

    def run(self) -> None:
        self.pieces.extend(self.stream)

    def ended(self) -> bool:
        self.join(timeout=30)
        return not self.is_alive()


class Gate:
    """A backend's `forward` that stops at its n-th call, until it is opened."""

    def __init__(self, client: EngineClient, monkeypatch: pytest.MonkeyPatch, at_step: int = 1) -> None:
        assert client._core is not None
        backend = client._core.backend
        self.reached, self.opened = threading.Event(), threading.Event()
        self.n_steps = 0
        forward = backend.forward

        def gated(sequences: Any) -> Any:
            self.n_steps += 1
            if self.n_steps == at_step:
                self.reached.set()
                assert self.opened.wait(30)
            return forward(sequences)

        monkeypatch.setattr(backend, "forward", gated)


def test_a_step_serves_all_streams(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one brings the others' events too, which wait in their inboxes."""
    client = make_client()
    gate = Gate(client, monkeypatch, at_step=0)
    first, second = client.submit(request(5)), client.submit(request(6))
    answers = [first.finish(), second.finish()]
    assert gate.n_steps == 4
    assert [answer.finish_reason for answer in answers] == ["length", "length"]
    assert [len(answer.tokens) for answer in answers] == [4, 4]
    assert answers[0].text == "".join(chr(65 + token) for token in answers[0].tokens)


@pytest.mark.parametrize(("n_prompt", "at_step", "n_pieces"), [(100, 2, 0), (5, 1, 1), (5, 3, 3)])
def test_closing_a_stream_ends_the_thread_that_reads_it(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, n_prompt: int, at_step: int, n_pieces: int
) -> None:
    """While the prompt is read, and while it generates: with what the step that runs still brings."""
    client = make_client()
    gate = Gate(client, monkeypatch, at_step)
    stream = client.submit(request(n_prompt, max_tokens=20))
    reader = Reader(stream)
    assert gate.reached.wait(30)
    stream.close()
    gate.opened.set()
    assert reader.ended()
    assert len(reader.pieces) == n_pieces
    assert gate.n_steps == at_step
    assert stream.completion.finish_reason == "cancelled"
    assert stream.completion.text == "".join(reader.pieces)
    assert len(stream.completion.tokens) == n_pieces


def test_closing_a_queued_stream_ends_its_reader(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that waits for the memory of another, which goes on."""
    client = make_client(n_pages=4)
    gate = Gate(client, monkeypatch, at_step=10)
    first, queued = client.submit(request(100, max_tokens=8)), client.submit(request(100))
    readers = [Reader(first), Reader(queued)]
    assert gate.reached.wait(30)
    queued.close()
    gate.opened.set()
    assert all(reader.ended() for reader in readers)
    assert (readers[1].pieces, queued.completion.finish_reason) == ([], "cancelled")
    assert first.completion.finish_reason == "length"


def test_an_exception_within_a_step_takes_nothing_from_others(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes between two requests' tokens: the first has its token, the second gets it in the next step."""
    expected = [make_client().submit(request(n, m)).finish() for n, m in ((5, 1), (6, 3))]
    client = make_client()
    first, second = client.submit(request(5, max_tokens=1)), client.submit(request(6, max_tokens=3))
    chosen_after, n_calls = Sampler.chosen_after, 0

    def interrupted(self: Sampler, *args: Any) -> int:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 2:
            raise KeyboardInterrupt
        return chosen_after(self, *args)

    monkeypatch.setattr(Sampler, "chosen_after", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(second)
    readers = [Reader(first), Reader(second)]
    assert all(reader.ended() for reader in readers)
    for stream, answer in zip((first, second), expected, strict=True):
        assert (stream.completion.text, stream.completion.tokens) == (answer.text, answer.tokens)
        assert stream.completion.finish_reason == "length"


def test_a_reader_ends_with_its_request_even_if_the_last_event_was_lost(make_client: MakeClient) -> None:
    """An exception may come between the end of a request and the news of it."""
    client = make_client()
    stream = client.submit(request())
    next(stream)
    assert client._core is not None
    client._core.step(lambda event: None)
    client._core.cancel(stream._request.id)
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"


def test_a_request_that_nothing_serves_fails(make_client: MakeClient) -> None:
    """An exception may come while a request is in neither queue; its reader must not try for ever."""
    client = make_client()
    stream = client.submit(request())
    assert client._core is not None
    client._core.scheduler.waiting.clear()
    with pytest.raises(GgpyError, match="left this answer without a way to go on"):
        next(stream)


def test_a_failed_step_leaves_the_answer_to_be_read(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits gets the exception, and may ask for the next piece again."""
    client = make_client()
    stream = client.submit(request())
    assert client._core is not None
    with monkeypatch.context() as patch:
        patch.setattr(client._core.backend, "forward", lambda sequences: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            next(stream)
    assert len(stream.finish().tokens) == 4


def test_a_refused_request_leaves_nothing_behind(make_client: MakeClient) -> None:
    """It has no inbox."""
    client = make_client(n_ctx=64)
    with pytest.raises(PromptTooLongError):
        client.submit(request(64))
    gc.collect()
    client.submit(request()).finish()
    client.logits([1], 1)
    assert client._inboxes == {}


def test_a_stream_keeps_the_engine_and_the_last_one_frees_it(make_client: MakeClient,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is closed when neither the client nor a stream is held."""
    client = make_client()
    assert client._core is not None
    closed = threading.Event()
    client._close_backend.detach()
    client._close_backend = weakref.finalize(client, closed.set)
    stream = client.submit(request())
    del client
    gc.collect()
    assert len(stream.finish().tokens) == 4
    assert not closed.is_set()
    del stream
    gc.collect()
    assert closed.is_set()


def test_closing_waits_for_the_step_and_ends_all_who_wait(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend must not go while it computes."""
    client = make_client()
    gate = Gate(client, monkeypatch)
    stream = client.submit(request())
    errors: list[GgpyError] = []

    def read() -> None:
        try:
            stream.finish()
        except GgpyError as error:
            errors.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert gate.reached.wait(30)
    closer = threading.Thread(target=client.close, daemon=True)
    closer.start()
    while not client._lock._gates:
        threading.Event().wait(0.001)
    assert client._close_backend.alive
    gate.opened.set()
    closer.join(30)
    reader.join(30)
    assert not client._close_backend.alive
    assert [str(error) for error in errors] == ["this LLM is closed; load another one"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_may_close_but_not_use_it(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, though a thread of the parent holds the lock: it does not exist in the child, and never lets go."""
    client = make_client()
    gate = Gate(client, monkeypatch)
    reader = Reader(client.submit(request()))
    assert gate.reached.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)            # ends a child that hangs, with a status that is not 0
        status = 1
        try:
            client.submit(request())
        except GgpyError as error:
            client.close()
            status = 0 if "was forked" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    gate.opened.set()
    assert reader.ended()
    assert len(reader.pieces) == 4
