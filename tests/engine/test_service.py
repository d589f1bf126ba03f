"""Requests on their way to the engine: who waits for whom, and what failures become."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.engine.messages import Answer, Cancel, Generate, GetMetrics, Reply, Shutdown, Tokens
from ggpy.engine.request import Request
from ggpy.engine.service import N_PREPARING, EngineService

ENOUGH_S = 30


class Panic(BaseException):
    """What a panic of compiled code looks like: no Exception."""


class Asker:
    """A service in a thread, and what it has answered."""

    def __init__(self, core: Any) -> None:
        self.core = core
        self.answers: list[Answer] = []
        self._changed = threading.Condition()
        self.service = EngineService(core, self._take)
        self.thread = threading.Thread(target=self.service.run, daemon=True)
        self.thread.start()

    def _take(self, answers: list[Answer]) -> None:
        with self._changed:
            self.answers += answers
            self._changed.notify_all()

    def generate(self, request_id: int, **params: Any) -> None:
        """Ask for two tokens."""
        wanted = SamplingParams(temperature=0, ignore_eos=True, max_tokens=2, **params)
        self.service.obey(Generate(id=request_id, prompt_tokens=[1, 2, 3], params=wanted))

    def last_of(self, request_id: int) -> Tokens:
        """The last event of an answer, waited for."""
        event: Tokens = self._wait(
            lambda a: isinstance(a, Tokens) and a.request_id == request_id and a.finish_reason)
        return event

    def reply_to(self, call_id: int) -> Reply:
        reply: Reply = self._wait(lambda a: isinstance(a, Reply) and a.id == call_id)
        return reply

    def _wait(self, is_it: Callable[[Answer], Any]) -> Any:
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(is_it, self.answers)), ENOUGH_S)
            return next(filter(is_it, self.answers))


@pytest.fixture
def make_asker() -> Iterator[Callable[[Any], Asker]]:
    """Services of cores, which are shut down at the end."""
    made: list[Asker] = []

    def make(core: Any) -> Asker:
        made.append(Asker(core))
        return made[-1]

    yield make
    for asker in made:
        asker.service.obey(Shutdown())
        asker.thread.join(ENOUGH_S)
        assert not asker.thread.is_alive()


class Compiler:
    """Has requests that ask for Mirostat wait until it is `done`."""

    def __init__(self, core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = threading.Event()
        self.waiting = threading.Semaphore(0)       # one for each request that has come to wait
        prepare = core.prepare

        def slow(request: Request) -> Any:
            if request.params.mirostat:
                self.waiting.release()
                assert self.done.wait(ENOUGH_S)
            return prepare(request)

        monkeypatch.setattr(core, "prepare", slow)
        monkeypatch.setattr(core, "must_compile", lambda request: bool(request.params.mirostat))


@pytest.fixture
def compiling(make_asker: Callable[[Any], Asker], make_driver: Callable[..., Any],
              monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Asker, Compiler]]:
    """A service and the compiler of its core."""
    core = make_driver().core
    compiler = Compiler(core, monkeypatch)      # first: the service takes the methods of the core as they are
    yield make_asker(core), compiler
    compiler.done.set()


def test_who_needs_nothing_compiled_waits_for_nobody(compiling: tuple[Asker, Compiler]) -> None:
    """However many requests wait for the compiler, nor do metrics."""
    asker, compiler = compiling
    waiting = range(1, 2 * N_PREPARING + 1)
    for i in waiting:
        asker.generate(i, mirostat=2)
    asker.generate(100)
    asker.service.obey(GetMetrics(101))
    assert asker.last_of(100).finish_reason == "length"
    assert "llamacpp:prompt_tokens_total" in str(asker.reply_to(101).value)
    assert all(compiler.waiting.acquire(timeout=ENOUGH_S) for _ in waiting)
    compiler.done.set()
    assert all(asker.last_of(i).finish_reason == "length" for i in waiting)


def test_a_request_that_waits_for_the_compiler_can_be_cancelled(compiling: tuple[Asker, Compiler]) -> None:
    """Nothing of it is told when it is ready."""
    asker, compiler = compiling
    asker.generate(1, mirostat=2)
    asker.service.obey(Cancel(1))
    compiler.done.set()
    asker.generate(2)
    asker.last_of(2)
    assert {answer.request_id for answer in asker.answers if isinstance(answer, Tokens)} == {2}


def test_a_panic_while_a_request_is_prepared_is_its_answer(
    make_asker: Callable[[Any], Asker], make_driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever, and the next request is answered."""
    core = make_driver().core
    prepare = core.prepare

    def panics_once(request: Request) -> Any:
        if request.id == 1:
            raise Panic("index out of bounds")
        return prepare(request)

    monkeypatch.setattr(core, "prepare", panics_once)
    asker = make_asker(core)
    asker.generate(1)
    error = asker.last_of(1).error
    assert error is not None
    assert "failed to prepare it (Panic: index out of bounds)" in str(error.exception())
    asker.generate(2)
    assert asker.last_of(2).finish_reason == "length"


def test_metrics_that_cannot_be_told_are_an_error(
    make_asker: Callable[[Any], Asker], make_driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked does not wait for ever."""
    core = make_driver().core
    monkeypatch.setattr(core.metrics, "text", lambda: 1 / 0)
    asker = make_asker(core)
    asker.service.obey(GetMetrics(7))
    error = asker.reply_to(7).error
    assert error is not None
    assert "failed to tell its metrics (ZeroDivisionError: division by zero)" in str(error.exception())


def test_cold_samplers_have_to_be_compiled(
    make_driver: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samplers that are in memory have not."""
    core = make_driver().core
    greedy, mirostat = Request([1], SamplingParams(temperature=0)), Request([1], SamplingParams(mirostat=2))
    core.prepare(greedy)
    monkeypatch.setattr("ggpy.kernels.cpu.object_loader.read_object", lambda path: None)
    monkeypatch.setattr("ggpy.kernels.cpu.object_loader._addresses", {"sample_order.best": 1})
    assert not core.must_compile(greedy)
    assert core.must_compile(mirostat)
