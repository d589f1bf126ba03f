"""The one thread that an engine runs in, and what it may be asked to do."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ggpy.engine.core import EngineCore, Generation
from ggpy.engine.request import Event
from ggpy.errors import GgpyError

Deliver = Callable[[Event], None]       # called in the engine's thread, which it must not keep waiting

CLOSED = "this LLM is closed; load another one"

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class Submit:
    """Generate; `deliver` gets the events, the last of them with a finish reason, unless it is cancelled before."""

    generation: Generation
    deliver: Deliver


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a request before the next step; no event follows. Nothing happens if it has ended."""

    request_id: int


@dataclass(slots=True)
class Call:
    """Something to do with the core between two steps.

    `function` is told whether it is still wanted, by a function of its own; `reply` gets what it returns, or the
    GgpyError that it fails with.
    """

    what: str                   # to do, in words that follow "failed to"
    function: Callable[[EngineCore, Callable[[], bool]], Any]
    reply: Callable[[Any], None]
    is_wanted: bool = True      # who asked may change it


@dataclass(frozen=True, slots=True)
class Close:
    """End all requests with an error, free the backend and end the thread; `reply` gets None then.

    At the end of Python nobody is to be told: threads that wait are about to vanish, and would only complain.
    """

    tells: bool = True
    reply: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue)


Command = Submit | Cancel | Call | Close


class EngineLoop:
    """Obeys commands and runs steps, in whichever thread calls `run` first: that one alone touches `core`.

    Python runs signal handlers in the main thread only, so an exception of Ctrl-C never tears a step apart. The thread
    sleeps while there is nothing to do. `after_step` is called whenever all events of a step, and all replies before
    it, are delivered.
    """

    def __init__(self, core: EngineCore, after_step: Callable[[], None] = lambda: None) -> None:
        # putting something into a SimpleQueue is one operation: finalizers and signal handlers may do it too
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.thread_id: int | None = None           # of the thread that runs; None: none yet
        self.has_ended = False                      # nobody is told anything any more
        self._core: EngineCore | None = core
        self._claim = threading.Lock()
        self._deliver: dict[int, Deliver] = {}      # of live requests
        self._after_step = after_step
        self._tells = True

    def start(self) -> None:
        """Have a thread run, unless one does. Callers may meet here, or be interrupted: only one thread gets to run."""
        if self.thread_id is None:
            threading.Thread(target=self.run, name="ggpy-engine", daemon=True).start()

    def run(self) -> None:
        """Serve until Close; returns at once if another thread does, or did."""
        if not self._claim.acquire(blocking=False):
            return
        self.thread_id = threading.get_ident()
        core, self._core = self._core, None
        assert core is not None
        try:
            self._serve(core)
        finally:
            self._end(core)

    def _serve(self, core: EngineCore) -> None:
        while True:
            try:
                if not self._obey_all(core):
                    return
                for event in core.step():
                    self._emit(event)
                self._after_step()
            except Exception as error:          # a bug: nobody is to wait for ever because of it
                logger.exception("the engine failed; all answers end with an error")
                self._end_all(f"the engine failed while it worked on this answer ({described(error)}); ask again")
                core.reset()
                self._after_step()

    def _obey_all(self, core: EngineCore) -> bool:
        """Obey what has been sent, but nothing that is sent meanwhile, so that steps get their turn; False to end.

        Waits for a command if nothing else is to be done.
        """
        for _ in range(max(self.commands.qsize(), int(not core.has_work))):
            match self.commands.get():
                case Submit(generation, deliver):
                    self._deliver[generation.request.id] = deliver
                    core.add(generation)
                case Cancel(request_id):
                    self._deliver.pop(request_id, None)
                    core.cancel(request_id)
                case Call(is_wanted=True) as call:
                    call.reply(answer(core, call))
                case Close(tells) as command:
                    self.commands.put(command)      # answered at the very end
                    self._tells = tells
                    return False
        return True

    def _emit(self, event: Event) -> None:
        deliver = self._deliver[event.request_id]
        if event.finish_reason is not None:
            del self._deliver[event.request_id]
        deliver(event)

    def _end_all(self, reason: str) -> None:
        while self._deliver:
            request_id, deliver = self._deliver.popitem()
            deliver(failure(request_id, reason))

    def _end(self, core: EngineCore) -> None:
        """Free the backend, then tell all who wait."""
        try:
            core.backend.close()
        finally:
            replies = []
            while not self.commands.empty():
                match self.commands.get():
                    case Submit(generation, deliver):
                        self._deliver[generation.request.id] = deliver
                    case Call(reply=reply) if self._tells:
                        reply(GgpyError(CLOSED))
                    case Close(reply=closer):
                        replies.append(closer)
            if self._tells:
                self._end_all(CLOSED)
                self._after_step()
            self.has_ended = True       # who sends a command from now on need not wait
            for closer in replies:
                closer.put(None)


def answer(core: EngineCore, call: Call) -> Any:
    """What comes of `call`; a bug on the way is the asker's trouble alone."""
    try:
        return call.function(core, lambda: call.is_wanted)
    except GgpyError as error:
        return error
    except Exception as error:
        logger.exception("the engine failed to %s", call.what)
        return GgpyError(f"the engine failed to {call.what} ({described(error)})")


def described(error: Exception) -> str:
    """An exception in a few words."""
    return f"{type(error).__name__}: {error}"[:200]


def failure(request_id: int, reason: str) -> Event:
    """The last event of a request that failed."""
    return Event(request_id, finish_reason="error", error=GgpyError(reason))
