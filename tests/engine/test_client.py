"""The client that threads share: who gets which event, and what closing, failures and forks do to those who wait."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ggpy.engine.client import CompletionStream, EngineClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.request import Request
from ggpy.errors import GgpyError, PromptTooLongError, RequestError

MakeDriver = Callable[..., Any]     # the Driver of conftest.py


class Engine:
    """A client, and what is behind it."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.backend = driver.backend
        self.client = EngineClient(driver.core)

    def submit(self, n_prompt: int = 5, max_tokens: int = 4) -> CompletionStream:
        return self.client.submit(request(n_prompt, max_tokens))

    def settle(self) -> None:
        """Wait until all that was sent before is done; then each page must be free or held by those that say so."""
        self.client.logits([1], 1)
        self.driver.check_pages()


MakeEngine = Callable[..., Engine]


@pytest.fixture
def make_engine(make_driver: MakeDriver) -> MakeEngine:
    """A client of an engine on the backend of conftest.py; its options are those of Driver."""
    return lambda **options: Engine(make_driver(**options))


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
        self.error: GgpyError | None = None
        self.start()

    def run(self) -> None:
        try:
            self.pieces.extend(self.stream)
        except GgpyError as error:
            self.error = error

    def ended(self) -> bool:
        self.join(timeout=30)
        return not self.is_alive()


class Gate:
    """A backend's `forward` that stops at its n-th call, until it is opened; `meanwhile` then happens."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch, at_step: int = 1,
                 meanwhile: Callable[[], Any] = lambda: None) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()
        self.n_steps = 0
        forward = engine.backend.forward

        def gated(sequences: Any) -> Any:
            self.n_steps += 1
            if self.n_steps == at_step:
                self.reached.set()
                assert self.opened.wait(30)
                meanwhile()
            return forward(sequences)

        monkeypatch.setattr(engine.backend, "forward", gated)


def test_a_step_serves_all_streams(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that come while a third is in its first step share all that follow."""
    engine = make_engine()
    gate = Gate(engine, monkeypatch)
    streams = [engine.submit(4, max_tokens=1)]
    assert gate.reached.wait(30)
    streams += [engine.submit(5), engine.submit(6)]
    gate.opened.set()
    answers = [stream.finish() for stream in streams]
    assert gate.n_steps == 5
    assert [answer.finish_reason for answer in answers] == ["length"] * 3
    assert [len(answer.tokens) for answer in answers] == [1, 4, 4]
    assert answers[1].text == "".join(chr(65 + token) for token in answers[1].tokens)


def test_many_threads_get_the_answers_they_would_get_alone(make_engine: MakeEngine) -> None:
    """More than run at a time, and more than there is memory for."""
    lengths = [3 + 7 * i % 50 for i in range(24)]
    expected = [make_engine().submit(n, max_tokens=20).finish().tokens for n in lengths]
    engine = make_engine(n_pages=6)
    readers = [Reader(engine.submit(n, max_tokens=20)) for n in lengths]
    assert all(reader.ended() for reader in readers)
    assert [reader.stream.completion.tokens for reader in readers] == expected
    engine.settle()


def test_logits_and_streams_take_turns(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask for logits all the time, steps go on."""
    engine = make_engine()
    expected = engine.submit(max_tokens=50).finish().tokens
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            engine.client.logits([1, 2, 3], 1)

    askers = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
    for asker in askers:
        asker.start()
    reader = Reader(engine.submit(max_tokens=50))
    assert reader.ended()
    over.set()
    assert reader.stream.completion.tokens == expected


@pytest.mark.parametrize(("n_prompt", "at_step", "n_pieces"), [(100, 2, 0), (5, 1, 0), (5, 3, 2)])
def test_closing_a_stream_ends_the_thread_that_reads_it_at_once(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, n_prompt: int, at_step: int, n_pieces: int
) -> None:
    """While the prompt is read, and while it generates: the step that runs is not waited for, but is the last."""
    engine = make_engine()
    gate = Gate(engine, monkeypatch, at_step)
    stream = engine.submit(n_prompt, max_tokens=20)
    reader = Reader(stream)
    assert gate.reached.wait(30)
    while len(reader.pieces) < n_pieces:
        pass
    stream.close()
    assert reader.ended()
    gate.opened.set()
    assert (len(reader.pieces), reader.error) == (n_pieces, None)
    assert stream.completion.finish_reason == "cancelled"
    assert stream.completion.text == "".join(reader.pieces)
    engine.settle()
    assert gate.n_steps == at_step + 1          # the last is that of `settle`


def test_closing_a_queued_stream_leaves_the_others_alone(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for the memory of another, which goes on."""
    engine = make_engine(n_pages=4)
    gate = Gate(engine, monkeypatch, at_step=3)
    first, queued = engine.submit(100, max_tokens=8), engine.submit(100)
    readers = [Reader(first), Reader(queued)]
    assert gate.reached.wait(30)
    queued.close()
    gate.opened.set()
    assert all(reader.ended() for reader in readers)
    assert (readers[1].pieces, queued.completion.finish_reason) == ([], "cancelled")
    assert first.completion.finish_reason == "length"
    engine.settle()


def test_several_threads_may_read_one_stream(make_engine: MakeEngine) -> None:
    """Each piece goes to one of them, and all end."""
    stream = make_engine().submit(max_tokens=40)
    readers = [Reader(stream) for _ in range(3)]
    assert all(reader.ended() for reader in readers)
    assert sum(len(reader.pieces) for reader in readers) == 40


def test_a_bug_in_the_engine_ends_the_answers_with_an_error_and_it_goes_on(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody hangs, nothing of the failed step is believed, and the next request is answered as ever."""
    engine = make_engine()
    expected = engine.submit(40).finish().tokens
    with monkeypatch.context() as patch:
        first_step, third_step = Gate(engine, patch), Gate(engine, patch, at_step=3, meanwhile=lambda: 1 / 0)
        readers = [Reader(engine.submit(n, max_tokens=20)) for n in (40, 100)]
        for gate in (first_step, third_step):
            gate.opened.set()
        assert all(reader.ended() for reader in readers)
    for reader in readers:
        assert "the engine failed while it worked on this answer (ZeroDivisionError: division by zero); ask again" in (
            str(reader.error))
        assert reader.stream.completion.finish_reason == "error"
    engine.settle()
    again = engine.submit(40).finish()
    assert (again.tokens, again.n_cached) == (expected, 0)


def test_a_prompt_is_read_from_when_it_runs(make_engine: MakeEngine) -> None:
    """What a request waited for before, as for its samplers, is no part of its prompt's speed."""
    engine = make_engine()
    waited = request()
    waited.added_s -= 100
    timings = engine.client.submit(waited).finish().timings
    assert timings.first_token_s > 100
    assert 0 < timings.prompt_s < 100


class Panic(BaseException):
    """What a panic of compiled code looks like: no Exception."""


def panic() -> None:
    raise Panic("index out of bounds")


def test_a_panic_in_a_step_is_a_bug_like_others(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the answers with its words, and the engine goes on."""
    engine = make_engine()
    with monkeypatch.context() as patch:
        gate = Gate(engine, patch, meanwhile=panic)
        reader = Reader(engine.submit())
        gate.opened.set()
        assert reader.ended()
    assert "the engine failed while it worked on this answer (Panic: index out of bounds)" in str(reader.error)
    assert len(engine.submit().finish().tokens) == 4


def test_a_panic_in_a_call_is_told_to_who_asked(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for ever."""
    engine = make_engine()
    monkeypatch.setattr(engine.driver.core, "embed", lambda texts, pooling: panic())
    with pytest.raises(GgpyError, match=r"failed to compute embeddings \(Panic: index out of bounds\)"):
        engine.client.embed([[1, 2]])


def test_an_engine_that_cannot_go_on_says_why(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """To those who wait and to those who ask later; "closed" would say that somebody had closed it."""
    engine = make_engine()
    gates = Gate(engine, monkeypatch, meanwhile=panic)
    monkeypatch.setattr(engine.driver.core, "reset", lambda: 1 / 0)
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    monkeypatch.setattr(sys, "unraisablehook", lambda args: None)       # how a thread without a name ends
    reader = Reader(engine.submit())
    assert gates.reached.wait(30)
    late = Reader(engine.submit(60))
    gates.opened.set()
    assert reader.ended()
    assert late.ended()
    assert "Panic: index out of bounds" in str(reader.error)
    while not engine.client._loop.has_ended:
        time.sleep(0.01)
    with pytest.raises(GgpyError, match=r"does not go on \(ZeroDivisionError: division by zero\)"):
        engine.submit()


def test_a_bug_that_adds_no_request_hangs_nobody(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stream exists already."""
    engine = make_engine()
    with monkeypatch.context() as patch:
        patch.setattr(engine.driver.core, "add", lambda generation: 1 / 0)
        with pytest.raises(GgpyError, match="ZeroDivisionError"):
            engine.submit().finish()
    assert len(engine.submit().finish().tokens) == 4


def test_a_bug_in_computing_logits_is_the_askers_trouble(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream goes on."""
    engine = make_engine()
    gate = Gate(engine, monkeypatch)
    reader = Reader(engine.submit(max_tokens=6))
    assert gate.reached.wait(30)
    monkeypatch.setattr(engine.backend, "hidden", lambda sequences: 1 / 0)
    gate.opened.set()
    with pytest.raises(GgpyError, match=r"failed to compute embeddings \(ZeroDivisionError: division by zero\)"):
        engine.client.embed([[1, 2]])
    assert reader.ended()
    assert len(reader.pieces) == 6
    engine.settle()


def test_what_cannot_work_is_refused_at_the_call(make_engine: MakeEngine) -> None:
    """Nothing is left behind."""
    engine = make_engine(n_ctx=64)
    with pytest.raises(PromptTooLongError, match="the prompt has 64 tokens"):
        engine.submit(64)
    with pytest.raises(RequestError, match="token 61 is not in the vocabulary"):
        engine.client.submit(Request([61]))
    with pytest.raises(PromptTooLongError, match="there are 65 tokens"):
        engine.client.logits([1] * 65, 1)
    assert len(engine.submit().finish().tokens) == 4
    assert engine.client._loop._deliver == {}


def test_samplers_are_made_by_the_thread_that_asks(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may have to be compiled, while the streams of others go on."""
    engine = make_engine()
    gate = Gate(engine, monkeypatch)
    first = engine.submit()
    assert gate.reached.wait(30)
    makers = []
    prepare = engine.driver.core.prepare

    def watched(r: Request) -> Any:
        makers.append(threading.get_ident())
        return prepare(r)

    monkeypatch.setattr(engine.driver.core, "prepare", watched)
    second = engine.submit()
    gate.opened.set()
    assert [len(stream.finish().tokens) for stream in (first, second)] == [4, 4]
    assert makers == [threading.get_ident()]


def test_a_stream_keeps_the_engine_and_the_last_one_frees_it(make_engine: MakeEngine,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    """The backend is closed when neither the client nor a stream is held, and the thread ends."""
    engine = make_engine()
    closed = threading.Event()
    monkeypatch.setattr(engine.backend, "close", closed.set)
    loop, client = engine.client._loop, weakref.ref(engine.client)
    stream = engine.submit()
    del engine.client
    gc.collect()
    assert len(stream.finish().tokens) == 4
    assert not closed.is_set()
    del stream
    gc.collect()
    assert client() is None
    assert closed.is_set()
    assert loop.has_ended


def test_an_engine_that_was_never_used_has_no_thread_and_is_freed(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever drops it."""
    engine = make_engine()
    closed = threading.Event()
    monkeypatch.setattr(engine.backend, "close", closed.set)
    assert engine.client._loop.thread_id is None
    del engine.client
    gc.collect()
    assert closed.is_set()


def test_an_engine_may_be_dropped_by_its_own_thread(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cycles of objects are collected in any thread; this one must not wait for itself."""
    engine = make_engine()
    closed = threading.Event()
    monkeypatch.setattr(engine.backend, "close", closed.set)
    loop = engine.client._loop
    gate = Gate(engine, monkeypatch, meanwhile=lambda: engine.__dict__.pop("client"))
    reader = Reader(engine.submit())
    assert gate.reached.wait(30)
    reader.stream.close()
    assert reader.ended()
    del reader
    gate.opened.set()
    assert closed.wait(30)
    while not loop.has_ended:
        pass


def test_closing_waits_for_the_step_and_ends_all_who_wait(
    make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend must not go while it computes; everyone hears the same."""
    engine = make_engine()
    gate = Gate(engine, monkeypatch)
    order: list[str] = []
    monkeypatch.setattr(engine.backend, "close", lambda: order.append("backend closed"))
    reader = Reader(engine.submit())
    assert gate.reached.wait(30)
    closers = [threading.Thread(target=engine.client.close, daemon=True) for _ in range(2)]
    for closer in closers:
        closer.start()
    while engine.client._loop.commands.qsize() < 2:
        pass
    late = Reader(CompletionStream(engine.client, request()))
    order.append("step ended")
    gate.opened.set()
    for closer in closers:
        closer.join(30)
        assert not closer.is_alive()
    assert reader.ended()
    assert late.ended()
    assert order == ["step ended", "backend closed"]
    assert [str(r.error) for r in (reader, late)] == ["this LLM is closed; load another one"] * 2
    for use in (engine.submit, lambda: engine.client.logits([1], 1), lambda: engine.client.embed([[1]])):
        with pytest.raises(GgpyError, match="this LLM is closed; load another one"):
            use()
    engine.client.close()


def test_python_ends_while_a_stream_runs() -> None:
    """Neither hanging nor crashing, and without a word."""
    code = """
import threading
from tests.engine.conftest import Driver
from ggpy.engine.client import EngineClient
from ggpy.engine.request import Request
from ggpy.engine.config import SamplingParams
driver = Driver(n_pages=400, n_ctx=12_000)
driver.backend.close = lambda: print("closed")
client = EngineClient(driver.core)
streams = [client.submit(Request([1] * n, SamplingParams(ignore_eos=True))) for n in (3, 400)]
threading.Thread(target=streams[1].finish, daemon=True).start()
next(streams[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "closed\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_process_may_close_but_not_use_it(make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's thread does not exist there: nobody may wait for it, and the parent's goes on."""
    engine = make_engine()
    gate = Gate(engine, monkeypatch)
    stream = engine.submit()
    assert gate.reached.wait(30)
    child = os.fork()
    if child == 0:
        signal.alarm(20)            # ends a child that hangs, with a status that is not 0
        n_refused = 0
        try:
            for use in (engine.submit, lambda: engine.client.logits([1], 1), lambda: next(stream)):
                try:
                    use()
                except GgpyError as error:
                    n_refused += "was forked" in str(error)
            engine.client.close()
            del stream
            gc.collect()
        finally:
            os._exit(3 - n_refused)
    assert os.waitpid(child, 0)[1] == 0
    gate.opened.set()
    assert len(stream.finish().tokens) == 4
    assert np.array_equal(engine.client.logits([1], 1), engine.driver.logits([1], 1))
