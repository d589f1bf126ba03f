"""The one thread that an engine runs in, and what it may be asked to do."""

from __future__ import annotations

import _thread
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from ggpy.engine.core import EngineCore
from ggpy.engine.generation import Generation
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

    `reply` gets what `function` returns, or the GgpyError that it fails with. If that is a generator, it is run from
    one `yield` to the next between steps, so that answers go on; its own return value is the result.
    """

    what: str                   # to do, in words that follow "failed to"
    function: Callable[[EngineCore], Any]
    reply: Callable[[Any], None]
    is_wanted: bool = True      # who asked may change it: what is left is then not done


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
        self._begun: deque[tuple[Call, Generator[None, None, Any]]] = deque()
        self._after_step = after_step
        self._tells = True
        self.why_ended = CLOSED                     # for those who still ask

    def start(self) -> None:
        """Have a thread run, unless one does. Callers may meet here, or be interrupted: only one thread gets to run."""
        if self.thread_id is None:
            # threading.Thread.start waits in Python code, which Ctrl-C can leave with an unlocked lock to release
            _thread.start_new_thread(self.run, ())

    def run(self) -> None:
        """Serve until Close; returns at once if another thread does, or did."""
        if not self._claim.acquire(blocking=False):
            return
        self.thread_id = threading.get_ident()
        core, self._core = self._core, None
        assert core is not None
        try:
            self._serve(core)
        except BaseException as error:
            self.why_ended = f"the engine has failed and does not go on ({described(error)}); load the model again"
            raise
        finally:
            self._end(core)

    def _serve(self, core: EngineCore) -> None:
        while True:
            try:
                if not self._obey_all(core):
                    return
                for event in core.step():
                    self._emit(event)
                self._go_on()
                self._after_step()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:      # a bug, or a panic of compiled code: nobody is to wait for ever
                logger.exception("the engine failed; all answers end with an error")
                self._end_all(f"the engine failed while it worked on this answer ({described(error)}); ask again")
                core.reset()
                self._after_step()

    def _obey_all(self, core: EngineCore) -> bool:
        """Obey what has been sent, but nothing that is sent meanwhile, so that steps get their turn; False to end.

        Waits for a command if nothing else is to be done.
        """
        is_idle = not (core.has_work or self._begun)
        for _ in range(max(self.commands.qsize(), int(is_idle))):
            match self.commands.get():
                case Submit(generation, deliver):
                    self._submit(core, generation, deliver)
                case Cancel(request_id):
                    self._deliver.pop(request_id, None)
                    core.cancel(request_id)
                case Call(is_wanted=True) as call:
                    self._begin(core, call)
                case Close(tells) as command:
                    self.commands.put(command)      # answered at the very end
                    self._tells = tells
                    return False
        return True

    def _submit(self, core: EngineCore, generation: Generation, deliver: Deliver) -> None:
        request_id = generation.request.id
        self._deliver[request_id] = deliver
        try:
            core.add(generation)
        except GgpyError as error:
            self._emit(Event(request_id, finish_reason="error", error=error))

    def _begin(self, core: EngineCore, call: Call) -> None:
        result = attempt(call, lambda: call.function(core))
        if isinstance(result, Generator):
            self._begun.append((call, result))
        else:
            call.reply(result)

    def _go_on(self) -> None:
        """Do the next part of a call that takes several; they take turns."""
        if not self._begun:
            return
        call, parts = self._begun.popleft()
        if not call.is_wanted:
            parts.close()
            return
        result = attempt(call, lambda: next_part(parts))
        if result is NOT_YET:
            self._begun.append((call, parts))
        else:
            call.reply(result)

    def _emit(self, event: Event) -> None:
        deliver = self._deliver[event.request_id]
        if event.finish_reason is not None:
            del self._deliver[event.request_id]
        deliver(event)

    def _end_all(self, reason: str) -> None:
        while self._deliver:
            request_id, deliver = self._deliver.popitem()
            deliver(failure(request_id, reason))
        while self._begun:
            self._begun.popleft()[0].reply(GgpyError(reason))

    def _end(self, core: EngineCore) -> None:
        """Free the backend, then tell all who wait."""
        try:
            core.close()
        finally:
            replies = []
            while not self.commands.empty():
                match self.commands.get():
                    case Submit(generation, deliver):
                        self._deliver[generation.request.id] = deliver
                    case Call(reply=reply) if self._tells:
                        reply(GgpyError(self.why_ended))
                    case Close(reply=closer):
                        replies.append(closer)
            if self._tells:
                self._end_all(self.why_ended)
                self._after_step()
            self.has_ended = True       # who sends a command from now on need not wait
            for closer in replies:
                closer.put(None)


NOT_YET = object()


def next_part(parts: Generator[None, None, Any]) -> Any:
    """Run `parts` to its next yield; returns its result, NOT_YET if there is none."""
    try:
        next(parts)
    except StopIteration as end:
        return end.value
    return NOT_YET


def attempt(call: Call, function: Callable[[], Any]) -> Any:
    """What `function`, a part of `call`, returns, or why it failed; a bug on the way is the asker's trouble alone."""
    try:
        return function()
    except GgpyError as error:
        return error
    except BaseException as error:
        logger.exception("the engine failed to %s", call.what)
        return GgpyError(f"the engine failed to {call.what} ({described(error)})")


def described(error: BaseException) -> str:
    """An exception in a few words."""
    return f"{type(error).__name__}: {error}"[:200]


def failure(request_id: int, reason: str) -> Event:
    """The last event of a request that failed."""
    return Event(request_id, finish_reason="error", error=GgpyError(reason))
