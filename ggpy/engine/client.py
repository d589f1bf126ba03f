"""An engine in this process, for any number of threads."""

from __future__ import annotations

import math
import os
import queue
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TypeVar

from ggpy.arrays import Float32
from ggpy.engine.completion import Completion, Timings
from ggpy.engine.config import Pooling
from ggpy.engine.core import EngineCore
from ggpy.engine.loop import Call, Cancel, Close, Command, EngineLoop, Submit
from ggpy.engine.request import Event, FinishReason, Request
from ggpy.errors import GgpyError

AWAKE_S = 0.1           # who waits looks up so often: on Windows, Ctrl-C is heard only then
LONGEST_END_S = 30.0    # how long a dropped engine, or the end of Python, waits for a step to end

T = TypeVar("T")


class EngineClient:
    """Lets any number of threads use `core`, which one thread, started by the first request, runs for all of them.

    Every method raises GgpyError after `close`, and in a process that was forked from this one. An exception from
    outside, such as that of Ctrl-C, may end any of them at any time: it takes what was asked for back, and nothing
    else.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core: EngineCore | None = core        # to prepare requests; all else is the loop's
        self._loop = EngineLoop(core)
        self._process = os.getpid()
        # when the client is dropped or Python exits: threads must not outlive the memory that they work on
        self._finalizer = weakref.finalize(self, end_dropped, self._loop, self._process)

    def submit(self, request: Request) -> CompletionStream:
        """Queue `request`. Raises what EngineCore.prepare does."""
        generation = self._usable_core().prepare(request)
        stream = CompletionStream(self, request)
        try:
            self._send(Submit(generation, stream.inbox.put))
        except BaseException:           # perhaps after it was sent
            stream.close()
            raise
        return stream

    def cancel(self, request_id: int) -> None:
        """End a request before the next step. Waits for nothing, so that finalizers and signal handlers may call it."""
        self._loop.commands.put(Cancel(request_id))

    def logits(self, tokens: Sequence[int], n_outputs: int) -> Float32:
        """Logits (n_outputs, n_vocab) of the last tokens; raises what EngineCore.logits does."""
        return self._call("compute logits", lambda core: core.logits(tokens, n_outputs))

    def embed(self, texts: Sequence[Sequence[int]], pooling: Pooling | None = None) -> list[Float32]:
        """The vectors of `texts` (their tokens), (1, width) each, or (n_tokens, width) for pooling "none".

        Raises what EngineCore.embed does.
        """
        return self._call("compute embeddings", lambda core: core.embed(texts, pooling))

    def receive(self, box: queue.SimpleQueue[T]) -> T:
        """What the engine's thread puts into `box` next. Raises GgpyError if there is no such thread any more."""
        while True:
            try:
                return box.get(timeout=AWAKE_S)
            except queue.Empty:
                if self._loop.has_ended or os.getpid() != self._process:
                    break
        try:
            return box.get_nowait()     # its last words came just now
        except queue.Empty:
            raise self._refusal() from None

    def close(self) -> None:
        """Free the backend once the current step has ended. In a forked process, forget it: the parent has it."""
        self._core = None
        if os.getpid() == self._process:
            self._loop.start()
            end_loop(self._loop, Close())
        self._finalizer.detach()

    def _call(self, what: str, function: Callable[[EngineCore], T | Generator[None, None, T]]) -> T:
        self._usable_core()
        box: queue.SimpleQueue[T | GgpyError] = queue.SimpleQueue()
        call = Call(what, function, box.put)
        try:
            self._send(call)
            answer = self.receive(box)
        except BaseException:
            call.is_wanted = False
            raise
        if isinstance(answer, GgpyError):
            raise answer
        return answer

    def _send(self, command: Command) -> None:
        self._loop.commands.put(command)
        self._loop.start()

    def _usable_core(self) -> EngineCore:
        core = self._core
        if core is None or self._loop.has_ended or os.getpid() != self._process:
            raise self._refusal()
        return core

    def _refusal(self) -> GgpyError:
        if os.getpid() != self._process:
            return GgpyError("this LLM belongs to the process that this one was forked from; load another one here")
        return GgpyError(self._loop.why_ended)


def end_dropped(loop: EngineLoop, process: int) -> None:
    """End `loop`, which belongs to `process`, when nobody has its client any more."""
    if os.getpid() == process:
        command = Close(tells=False)
        if loop.thread_id is None:      # and none can be started at the end of Python
            loop.commands.put(command)
            loop.run()
        end_loop(loop, command, LONGEST_END_S)


def end_loop(loop: EngineLoop, command: Close, longest_s: float = math.inf) -> None:
    """End `loop` and wait until its backend is free, but not longer than `longest_s`."""
    if loop.has_ended:
        return
    loop.commands.put(command)
    start = time.monotonic()
    # its own thread cannot wait for itself: a cycle of objects may be collected anywhere
    while not loop.has_ended and loop.thread_id != threading.get_ident() and time.monotonic() - start < longest_s:
        try:
            command.reply.get(timeout=AWAKE_S)
            return
        except queue.Empty:
            continue


class CompletionStream(Iterator[str]):
    """The pieces of an answer's text, as they come; `completion` is there when the last one is.

    Closing it, or dropping it, cancels what is left of the answer, and so does an exception, such as that of Ctrl-C, in
    a thread that waits for a piece. It may be closed by another thread, or a signal handler, while one waits: that one
    gets no more. An answer that fails raises the GgpyError that says why.
    """

    _has_ended = True       # until it is made, which an exception may prevent

    def __init__(self, client: EngineClient, request: Request) -> None:
        self.inbox: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._client = client
        self._request = request
        self._events: list[Event] = []      # read so far
        self._has_ended = False

    def __next__(self) -> str:
        try:
            while (event := self._next_event()) is not None:
                if event.error is not None:
                    raise event.error
                if event.text:
                    return event.text
        except BaseException:
            self.close()
            raise
        raise StopIteration

    def finish(self) -> Completion:
        """Wait for the rest; returns the whole answer."""
        try:
            for _ in self:
                pass
        except BaseException:
            self.close()
            raise
        return self.completion

    def close(self) -> None:
        """Generate no more."""
        if not self._has_ended:
            self._client.cancel(self._request.id)
            self._end()

    def __del__(self) -> None:
        self.close()

    @property
    def n_read(self) -> int:
        """How many tokens of the prompt have been read; a figure to show, which the engine's thread moves on."""
        return min(self._request.num_computed, len(self._request.prompt_tokens))

    @property
    def completion(self) -> Completion:
        """The answer as far as it was read; its finish reason is "cancelled" if that is not to its end.

        Another thread may read on meanwhile.
        """
        events, request = list(self._events), self._request
        tokens = [token for event in events for token in event.tokens]
        times = [event.time_s for event in events if event.tokens]
        prompt_s = generation_s = first_token_s = 0.0
        if times:
            assert request.admitted_s is not None, "who gets tokens ran"
            prompt_s, generation_s = times[0] - request.admitted_s, times[-1] - times[0]
            first_token_s = times[0] - request.added_s
        reason: FinishReason = (events[-1].finish_reason if events else None) or "cancelled"
        timings = Timings(len(request.prompt_tokens), len(tokens), prompt_s, generation_s,
                          max((event.num_cached for event in events), default=0), request.num_drafted,
                          request.num_accepted, events[-1].miss if events else None, first_token_s)
        text = "".join(event.text for event in events)
        probabilities = tuple(entry for event in events for entry in event.probabilities)
        return Completion(text, tokens, reason, timings, request.params.seed, probabilities)

    def _next_event(self) -> Event | None:
        """The next event, read; None at the end, whoever brought that about meanwhile."""
        if self._has_ended:
            return None
        event = self._client.receive(self.inbox)
        if self._has_ended:
            self.inbox.put(event)       # for the next thread that waits
            return None
        self._events.append(event)
        if event.finish_reason is not None:
            self._end()
        return event

    def _end(self) -> None:
        """Read no more, and let a thread that waits for an event know, which tells the next."""
        self._has_ended = True
        self.inbox.put(Event(self._request.id))
