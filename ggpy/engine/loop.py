"""The one thread that an engine runs in, and what it may be asked to do."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from ggpy.engine.core import EngineCore, Generation
from ggpy.engine.request import Event
from ggpy.engine.runner import Float32
from ggpy.errors import GgpyError

# putting something into a SimpleQueue is one operation, and finalizers and signal handlers may do it too
Inbox = queue.SimpleQueue[Event]

CLOSED = "this LLM is closed; load another one"

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class Submit:
    """Generate; events go to `inbox`, the last of them with a finish reason, unless it is cancelled before."""

    generation: Generation
    inbox: Inbox


@dataclass(frozen=True, slots=True)
class Cancel:
    """End a request before the next step; no event follows. Nothing happens if it has ended."""

    request_id: int


@dataclass(slots=True)
class Compute:
    """Logits or hidden states of the last `n_outputs` of `tokens`; `reply` gets them, or why there are none."""

    kind: Literal["logits", "hidden"]
    tokens: Sequence[int]
    n_outputs: int
    reply: queue.SimpleQueue[Float32 | GgpyError] = field(default_factory=queue.SimpleQueue)
    is_wanted: bool = True      # who asked may change it: what is left is then not computed


@dataclass(frozen=True, slots=True)
class Close:
    """End all requests with an error, free the backend and end the thread; `reply` gets None then.

    At the end of Python nobody is to be told: threads that wait are about to vanish, and would only complain.
    """

    tells: bool = True
    reply: queue.SimpleQueue[None] = field(default_factory=queue.SimpleQueue)


Command = Submit | Cancel | Compute | Close


class EngineLoop:
    """Obeys commands and runs steps, in whichever thread calls `run` first: that one alone touches `core`.

    Python runs signal handlers in the main thread only, so an exception of Ctrl-C never tears a step apart. The thread
    sleeps while there is nothing to do.
    """

    def __init__(self, core: EngineCore) -> None:
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.thread_id: int | None = None           # of the thread that runs; None: none yet
        self.has_ended = False                      # nobody is told anything any more
        self._core: EngineCore | None = core
        self._claim = threading.Lock()
        self._inboxes: dict[int, Inbox] = {}        # of live requests
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
                    self._deliver(event)
            except Exception as error:          # a bug: nobody is to wait for ever because of it
                logger.exception("the engine failed; all answers end with an error")
                self._end_all(f"the engine failed while it worked on this answer ({described(error)}); ask again")
                core.reset()

    def _obey_all(self, core: EngineCore) -> bool:
        """Obey what has been sent, but nothing that is sent meanwhile, so that steps get their turn; False to end.

        Waits for a command if nothing else is to be done.
        """
        for _ in range(max(self.commands.qsize(), int(not core.has_work))):
            match self.commands.get():
                case Submit(generation, inbox):
                    self._inboxes[generation.request.id] = inbox
                    core.add(generation)
                case Cancel(request_id):
                    self._inboxes.pop(request_id, None)
                    core.cancel(request_id)
                case Compute(is_wanted=True) as command:
                    command.reply.put(computed(core, command))
                case Close(tells) as command:
                    self.commands.put(command)      # answered at the very end
                    self._tells = tells
                    return False
        return True

    def _deliver(self, event: Event) -> None:
        inbox = self._inboxes[event.request_id]
        if event.finish_reason is not None:
            del self._inboxes[event.request_id]
        inbox.put(event)

    def _end_all(self, reason: str) -> None:
        while self._inboxes:
            request_id, inbox = self._inboxes.popitem()
            inbox.put(failure(request_id, reason))

    def _end(self, core: EngineCore) -> None:
        """Free the backend, then tell all who wait."""
        try:
            core.backend.close()
        finally:
            replies = []
            while not self.commands.empty():
                match self.commands.get():
                    case Submit(generation, inbox):
                        self._inboxes[generation.request.id] = inbox
                    case Compute(reply=reply) if self._tells:
                        reply.put(GgpyError(CLOSED))
                    case Close(reply=closer):
                        replies.append(closer)
            if self._tells:
                self._end_all(CLOSED)
            self.has_ended = True       # who sends a command from now on need not wait
            for closer in replies:
                closer.put(None)


def computed(core: EngineCore, command: Compute) -> Float32 | GgpyError:
    """What `command` asks for; a bug on the way is the asker's trouble alone."""
    compute = core.logits if command.kind == "logits" else core.hidden
    try:
        return compute(command.tokens, command.n_outputs, lambda: command.is_wanted)
    except GgpyError as error:
        return error
    except Exception as error:
        logger.exception("the engine failed to compute %s", command.kind)
        return GgpyError(f"the engine failed to compute {command.kind} ({described(error)})")


def described(error: Exception) -> str:
    """An exception in a few words."""
    return f"{type(error).__name__}: {error}"[:200]


def failure(request_id: int, reason: str) -> Event:
    """The last event of a request that failed."""
    return Event(request_id, finish_reason="error", error=GgpyError(reason))
