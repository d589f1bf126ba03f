"""An engine that obeys messages, whichever way they come."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ggpy.backends.base import Scales
from ggpy.engine.config import MAX_SEED
from ggpy.engine.core import EngineCore
from ggpy.engine.loop import Call, Cancel, Close, EngineLoop, Submit, described
from ggpy.engine.messages import (
    AdapterList,
    Answer,
    Array,
    Command,
    ComputeLogits,
    Embed,
    EraseState,
    Failure,
    Generate,
    GetAdapters,
    GetMetrics,
    GetStatus,
    Ready,
    Reply,
    RestoreState,
    SavedTokens,
    SaveState,
    SetAdapters,
    Shutdown,
    Status,
    Tokens,
)
from ggpy.engine.messages import Cancel as CancelMessage
from ggpy.engine.request import Event, Request
from ggpy.engine.saved_state import restore_state, save_state
from ggpy.errors import GgpyError

N_PREPARING = 4     # requests that are made ready at a time
N_COMPILING = 64    # those that need something compiled first: they mostly wait, and others not for them

logger = logging.getLogger("ggpy")


class EngineService:
    """Serves one client: `obey` takes its messages, in one thread; `send` gets lists of answers, in several.

    The engine runs in whichever thread calls `run`.
    """

    def __init__(self, core: EngineCore, send: Callable[[list[Answer]], None]) -> None:
        self._must_compile, self._prepare_request = core.must_compile, core.prepare
        self._metrics = core.metrics
        self._loop = EngineLoop(core, self._flush)
        self._send = send
        self._answers: list[Answer] = []        # of this step; the engine's thread alone touches it
        self._preparing: set[int] = set()       # requests on their way to the engine
        self._calls: dict[int, Call] = {}
        self._lock = threading.Lock()           # of the two above
        self._preparers = ThreadPoolExecutor(N_PREPARING, thread_name_prefix="ggpy-prepare")
        self._compilers = ThreadPoolExecutor(N_COMPILING, thread_name_prefix="ggpy-compile")
        self._reporter = ThreadPoolExecutor(1, thread_name_prefix="ggpy-metrics")
        self.ready = ready_of(core)

    def run(self) -> None:
        """Serve until `obey` has got Shutdown; then the model's memory is free."""
        try:
            self._loop.run()
        finally:
            for pool in (self._preparers, self._compilers, self._reporter):
                pool.shutdown(wait=False, cancel_futures=True)

    def obey(self, command: Command) -> None:
        """Have the engine do what `command` asks for; waits for nothing."""
        match command:
            case Generate():
                self._generate(command)
            case CancelMessage(id=cancelled):
                self._cancel(cancelled)
            case ComputeLogits():
                self._call(command.id, "compute logits", functools.partial(computed_logits, command))
            case Embed():
                self._call(command.id, "compute embeddings", functools.partial(embedded, command))
            case SaveState():
                self._call(command.id, "save a state", functools.partial(saved, command))
            case RestoreState():
                self._call(command.id, "restore a state", functools.partial(restored, command))
            case EraseState():
                self._call(command.id, "erase a state", functools.partial(erased, command))
            case GetMetrics():
                self._reporter.submit(self._tell_metrics, command.id)
            case GetAdapters():
                self._call(command.id, "tell its adapters", adapters_of)
            case SetAdapters(scales=scales):
                self._call(command.id, "set the scales of adapters", functools.partial(set_adapters, scales))
            case GetStatus():
                self._call(command.id, "tell its status", status_of)
            case Shutdown():
                with self._lock:
                    for call in self._calls.values():
                        call.is_wanted = False
                self._loop.commands.put(Close())

    def _generate(self, command: Generate) -> None:
        """Make its requests, in the order of service, and have them prepared in another thread."""
        requests = requests_of(command)
        with self._lock:
            self._preparing.update(request.id for request in requests)
        self._preparers.submit(self._prepare, requests)

    def _prepare(self, requests: Sequence[Request]) -> None:
        """Make `requests`, which differ by their seeds alone, ready, or have that done where it may take long."""
        is_slow = False
        with suppress(BaseException):       # what is wrong with it is told when it is prepared
            is_slow = self._must_compile(requests[0])
        if is_slow:
            self._compilers.submit(self._prepare_all, requests)
        else:
            self._prepare_all(requests)

    def _prepare_all(self, requests: Sequence[Request]) -> None:
        for index, request in enumerate(requests):
            try:
                generation = self._prepare_request(request)
            except GgpyError as error:
                self._refuse(request.id, index, error)
            except BaseException as error:      # a panic of compiled code is no Exception
                logger.exception("the engine failed to prepare a request")
                self._refuse(request.id, index, GgpyError(f"the engine failed to prepare it ({described(error)})"))
            else:
                with self._lock:        # a Cancel comes before it is sent, or after that
                    if request.id in self._preparing:
                        self._preparing.remove(request.id)
                        self._loop.commands.put(Submit(generation, functools.partial(self._deliver, index)))

    def _refuse(self, request_id: int, index: int, error: GgpyError) -> None:
        with self._lock:
            self._preparing.discard(request_id)
        self._send([Tokens.failure(request_id, index, error)])

    def _cancel(self, cancelled: int) -> None:
        with self._lock:
            call = self._calls.pop(cancelled, None)
            if call is not None:
                call.is_wanted = False
            elif cancelled in self._preparing:
                self._preparing.remove(cancelled)
            else:
                self._loop.commands.put(Cancel(cancelled))

    def _call(self, call_id: int, what: str, function: Callable[[EngineCore], Any]) -> None:
        call = Call(what, function, functools.partial(self._reply, call_id))
        with self._lock:
            self._calls[call_id] = call
        self._loop.commands.put(call)

    def _reply(self, call_id: int, value: Array | Status | SavedTokens | AdapterList | GgpyError) -> None:
        with self._lock:
            self._calls.pop(call_id, None)
        self._answers.append(Reply(call_id, error=Failure.of(value)) if isinstance(value, GgpyError) else
                             Reply(call_id, value))

    def _tell_metrics(self, call_id: int) -> None:
        try:
            reply = Reply(call_id, self._metrics.text())
        except BaseException as error:
            logger.exception("the engine failed to tell its metrics")
            reply = Reply(call_id, error=Failure.of(GgpyError(
                f"the engine failed to tell its metrics ({described(error)})")))
        self._send([reply])

    def _deliver(self, index: int, event: Event) -> None:
        self._answers.append(Tokens.of(event, index))

    def _flush(self) -> None:
        if self._answers:
            answers, self._answers = self._answers, []
            self._send(answers)


def ready_of(core: EngineCore) -> Ready:
    """What the client is told of the model."""
    backend, config = core.backend, core.config
    return Ready(config.n_ctx, backend.n_vocab, backend.n_embd, min(config.max_running, backend.max_outputs),
                 backend.is_encoder, config.pooling, backend.n_classes, backend.max_tokens)


def requests_of(command: Generate) -> list[Request]:
    """What `command` asks for. A seed that is given counts up, so that several answers differ."""
    seed = command.params.seed
    deadline_s = None if command.deadline_s is None else time.perf_counter() + command.deadline_s
    return [Request(command.prompt_tokens,
                    command.params if seed is None else replace(command.params, seed=(seed + i) & MAX_SEED),
                    constraint=command.constraint, probabilities=command.probabilities,
                    priority=command.priority, deadline_s=deadline_s, salt=command.salt, adapters=command.adapters,
                    context_shift=command.context_shift, tells_progress=command.tells_progress,
                    keeps=command.keeps, id=command.id + i)
            for i in range(command.n)]


def computed_logits(command: ComputeLogits, core: EngineCore) -> Generator[None, None, Array]:
    """What `command` asks for, computed part by part."""
    return Array.of((yield from core.logits(command.tokens, command.n_outputs)))


def embedded(command: Embed, core: EngineCore) -> Generator[None, None, Array]:
    """What `command` asks for, computed part by part."""
    rows = yield from core.embed(command.texts, command.pooling)
    return Array.of(np.concatenate(rows) if rows else np.empty((0, core.backend.n_embd), np.float32))


def saved(command: SaveState, core: EngineCore) -> SavedTokens:
    """Save what the cache holds."""
    state = save_state(command.path, core.backend, core.cache, command.tokens, core.salt_of(command.salt),
                       command.head)
    return SavedTokens(state.tokens, state.salt, state.size_bytes)


def restored(command: RestoreState, core: EngineCore) -> SavedTokens:
    """Put what is saved into the cache."""
    state = restore_state(command.path, core.backend, core.cache, start=command.start,
                          salt=None if command.salt is None else core.salt_of(command.salt))
    return SavedTokens(state.tokens, state.salt, state.size_bytes)


def erased(command: EraseState, core: EngineCore) -> Status:
    """Take it out of the cache."""
    core.cache.erase(command.tokens, core.salt_of(command.salt))
    return status_of(core)


def adapters_of(core: EngineCore) -> AdapterList:
    """The adapters of the model."""
    return AdapterList(tuple(core.adapters.infos))


def set_adapters(scales: Scales, core: EngineCore) -> AdapterList:
    """What requests get from now on that do not say."""
    core.adapters.set_defaults(scales)
    return adapters_of(core)


def status_of(core: EngineCore) -> Status:
    """How busy `core` is."""
    load = core.metrics.load()
    return Status(load.n_running, load.n_waiting, tuple(load.pages))
