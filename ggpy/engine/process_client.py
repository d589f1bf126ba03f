"""An engine in a process of its own, as seen from the process that asks it. `process.py` is the other side."""

from __future__ import annotations

import asyncio
import logging
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

import zmq

from ggpy.engine.async_client import AsyncClient, CloseMode, Health
from ggpy.engine.messages import (
    Answer,
    Command,
    Progress,
    Ready,
    Shutdown,
    StartFailed,
    Tokens,
    decode_answers,
    encode,
)
from ggpy.engine.transport import ParentPipes, Start
from ggpy.errors import EngineError, GgpyError

# the folder of ggpy comes last, and the current folder not at all: nothing in it may pass for a module
BOOT = "import sys; sys.path.append(sys.argv[1]); from ggpy.engine.process import main; main()"
PACKAGES = str(Path(__file__).parents[2])
RESTART_DELAYS_S = (0.0, 1.0, 5.0, 15.0, 30.0)      # before the first, second, ... start after failures in a row
SHUTDOWN_S = 30.0       # how long the step that runs may take when the engine is to end

logger = logging.getLogger("ggpy")


class EngineProcess:
    """One process with an engine, from its start to its end.

    `received` is called with its answers, and at last `ended` with its exit code, both in the event loop `loop`.
    """

    def __init__(self, load: bytes, loop: asyncio.AbstractEventLoop, received: Callable[[list[Answer]], None],
                 ended: Callable[[int], None], *, use_tcp: bool = False) -> None:
        self._pipes = ParentPipes(use_tcp=use_tcp)
        self._loop, self._received, self._ended = loop, received, ended
        command = [sys.executable, "-P", "-c", BOOT, PACKAGES]
        try:    # in a session of its own: Ctrl-C on the terminal is for the parent, which says what follows from it
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                                             start_new_session=True)
        except BaseException:
            self._pipes.close()
            raise
        self._tell_start(load)
        self._threads = [threading.Thread(target=self._read, name="ggpy-answers", daemon=True),
                         threading.Thread(target=self._wait, name="ggpy-wait", daemon=True)]
        for thread in self._threads:
            thread.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Command) -> None:
        """Never waits."""
        self._pipes.send(encode([command]))

    def kill(self) -> None:
        """End it at once; `ended` follows."""
        self._process.kill()

    def dispose(self) -> None:
        """Free what the process needed here; it has ended."""
        for thread in self._threads:
            thread.join()
        self._pipes.close()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def _tell_start(self, load: bytes) -> None:
        start = Start(self._pipes.addresses, tuple(sys.path), logger.getEffectiveLevel(), load)
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):         # it has ended already
            pickle.dump(start, self._process.stdin)
            self._process.stdin.flush()         # and stays open: its end tells the process that this one has ended

    def _wait(self) -> None:
        self._process.wait()
        self._pipes.say_ended()

    def _read(self) -> None:
        try:
            while (data := self._pipes.receive()) is not None:
                self._loop.call_soon_threadsafe(self._received, decode_answers(data))
        except (RuntimeError, GgpyError) as error:      # the event loop has ended, or what came is not a message
            logger.error("the engine's process is ended: %s", error)
            self.kill()
        code = self._process.wait()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._ended, code)


class ProcessClient(AsyncClient):
    """Keeps an engine running in a process of its own.

    `load`, which opens the model there, is a Load of `process.py` that pickle can name; `progress` is called in the
    event loop. If the process ends unexpectedly, everything that was asked of it fails, and another one is started:
    `restart_delays_s` has the delay before each start after failures in a row, and when none is left the client has
    failed. An engine that has finished an answer has not failed in a row.
    """

    def __init__(self, load: Callable[..., object], progress: Callable[[Progress], None] | None = None, *,
                 restart_delays_s: Sequence[float] = RESTART_DELAYS_S, use_tcp: bool = False) -> None:
        super().__init__(progress)
        self._load = pickle.dumps(load)
        self._delays_s = restart_delays_s
        self._use_tcp = use_tcp
        self._process: EngineProcess | None = None
        self._has_answered = False                      # this process has finished an answer
        self._start_error: GgpyError | None = None      # why this process could not open the model
        self._is_settled = asyncio.Event()              # the engine is ready, or there will be none
        self._supervisor = self._loop.create_task(self._supervise(), name="ggpy-supervisor")

    @classmethod
    async def start(cls, load: Callable[..., object], progress: Callable[[Progress], None] | None = None, *,
                    restart_delays_s: Sequence[float] = RESTART_DELAYS_S, use_tcp: bool = False) -> Self:
        """A client whose engine is ready. Raises what `load` does, and EngineError if the process fails."""
        client = cls(load, progress, restart_delays_s=restart_delays_s, use_tcp=use_tcp)
        try:
            await client.wait_ready()
        except BaseException:
            await client.aclose("cancel")
            raise
        return client

    @property
    def pid(self) -> int | None:
        """Of the engine's process, if there is one."""
        return None if self._process is None else self._process.pid

    async def wait_ready(self) -> None:
        """Wait until the engine is there, again if need be. Raises GgpyError, saying why, if there will be none."""
        await self._is_settled.wait()
        if self.health == "failed" and self._start_error is not None:
            raise self._start_error
        self._require_ready()

    async def aclose(self, mode: CloseMode = "finish") -> None:
        self._is_closing = True
        if mode == "finish":
            await self._idle.wait()
        self._fail_all(EngineError("the engine is shutting down"))
        if self.health == "ready":
            self._send(Shutdown())
        elif self.health != "closed":
            self._supervisor.cancel()
        self._settle_as("closed")
        await asyncio.wait([self._supervisor], timeout=SHUTDOWN_S)
        self._supervisor.cancel()
        await asyncio.wait([self._supervisor])

    async def _supervise(self) -> None:
        """Have a process run, another one if it fails, until the client is closed or there were too many failures."""
        n_failures = 0
        try:
            while True:
                error = await self._run_process()
                self._fail_all(error)
                n_failures = 1 if self._has_answered else n_failures + 1
                if self._is_closing or self._ready is None or n_failures > len(self._delays_s):
                    self._start_error = self._start_error or error
                    return
                self.health = "restarting"
                self._is_settled.clear()
                delay_s = self._delays_s[n_failures - 1]
                logger.error("%s; it starts again in %g s", error, delay_s)
                await asyncio.sleep(delay_s)
        finally:
            self._fail_all(EngineError("the engine is shutting down"))
            self._settle_as("closed" if self._is_closing else "failed")

    async def _run_process(self) -> GgpyError:
        """Start a process and wait for its end; returns the reason as an error."""
        self._has_answered, self._start_error = False, None
        ended: asyncio.Future[int] = self._loop.create_future()

        def set_ended(code: int) -> None:
            if not ended.done():
                ended.set_result(code)

        try:
            process = EngineProcess(self._load, self._loop, self._received, set_ended, use_tcp=self._use_tcp)
        except (OSError, zmq.ZMQError) as error:
            return EngineError(f"the engine's process cannot be started ({error})")
        self._process = process
        try:
            code = await ended
            return self._start_error or EngineError(
                f"the engine's process ended unexpectedly ({in_words(code)}); what it was asked for is lost")
        finally:
            self._process = None
            process.kill()
            process.dispose()

    def _send(self, command: Command) -> None:
        if self._process is not None:
            self._process.send(command)

    def _received(self, answers: Sequence[Answer]) -> None:
        super()._received(answers)
        for answer in answers:
            match answer:
                case StartFailed(error=failure):
                    self._start_error = failure.exception()
                case Ready() if not self._is_closing:
                    self._settle_as("ready")
                case Tokens(finish_reason=reason, error=None) if reason is not None:
                    self._has_answered = True

    def _settle_as(self, health: Health) -> None:
        self.health = health
        self._is_settled.set()


def in_words(code: int) -> str:
    """The exit code of a process, or the signal that ended it."""
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"
