"""An engine in this process, for any number of threads."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ggpy.engine.completion import Completion, Timings
from ggpy.engine.core import EngineCore
from ggpy.engine.fair_lock import FairLock
from ggpy.engine.request import Event, FinishReason, Request
from ggpy.engine.runner import Float32
from ggpy.errors import GgpyError


class EngineClient:
    """Shares `core` among threads: whoever waits for an event runs steps, and a step serves every request.

    Every method raises GgpyError after `close`, and in a process that was forked from this one.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core: EngineCore | None = core
        # also when the client is dropped or Python exits: the backend's threads must not outlive its memory
        self._close_backend = weakref.finalize(self, core.backend.close)
        self._lock = FairLock()
        self._inboxes: dict[int, deque[Event]] = {}     # of requests that somebody waits for
        self._dropped: deque[int] = deque()             # requests that nobody waits for any more
        self._process = os.getpid()

    def submit(self, request: Request) -> CompletionStream:
        """Queue `request`. Raises what EngineCore.add does."""
        stream = CompletionStream(self, request)        # made first, so that an interrupted call cancels the request
        with self._engine() as core:
            core.add(request)
            self._inboxes[request.id] = stream.inbox
        return stream

    def logits(self, tokens: Sequence[int], n_outputs: int) -> Float32:
        """As EngineCore.logits."""
        with self._engine() as core:
            return core.logits(tokens, n_outputs)

    def hidden(self, tokens: Sequence[int], n_outputs: int) -> Float32:
        """As EngineCore.hidden."""
        with self._engine() as core:
            return core.hidden(tokens, n_outputs)

    def wait(self, request: Request, inbox: deque[Event]) -> Event:
        """The next event of `request` from its `inbox`; one without tokens if the request has ended otherwise."""
        while not inbox:
            with self._engine() as core:
                if inbox:               # somebody else's step brought it
                    break
                if request.finish_reason is not None:
                    return Event(request.id, (), "", request.finish_reason)
                if not core.step(self._deliver):
                    raise GgpyError("an exception within a step left this answer without a way to go on; ask again")
        return inbox.popleft()

    def drop(self, request_id: int) -> None:
        """Cancel a request before the next step. Takes no lock, so that finalizers and signal handlers may call it."""
        self._dropped.append(request_id)

    def close(self) -> None:
        """Free the backend once the current step has ended. In a forked process, forget it: the parent has it."""
        if os.getpid() != self._process:        # a thread that is not in this process may hold the lock
            self._core = None
            self._close_backend.detach()
            return
        with self._lock:
            self._core = None
            self._close_backend()

    def _deliver(self, event: Event) -> None:
        inbox = self._inboxes.get(event.request_id)
        if inbox is not None:
            inbox.append(event)

    @contextmanager
    def _engine(self) -> Iterator[EngineCore]:
        """The engine, for this thread alone; requests that were dropped meanwhile are cancelled first."""
        if os.getpid() != self._process:
            raise GgpyError("this LLM belongs to the process that this one was forked from; load another one here")
        with self._lock:
            if self._core is None:
                raise GgpyError("this LLM is closed; load another one")
            while self._dropped:
                self._core.cancel(self._dropped[0])
                self._inboxes.pop(self._dropped[0], None)
                self._dropped.popleft()         # last, so that an exception before leaves it to the next one
            yield self._core


class CompletionStream(Iterator[str]):
    """The pieces of an answer's text, as they come; `completion` is there when the last one is.

    Closing it, or dropping it, cancels what is left of the answer; so it may be closed from another thread while one
    waits for it. An answer that fails raises the GgpyError that says why.
    """

    def __init__(self, client: EngineClient, request: Request) -> None:
        self.inbox: deque[Event] = deque()
        self._client = client
        self._request = request
        self._events: list[Event] = []      # read so far
        self._ended = False

    def __next__(self) -> str:
        while not self._ended:
            event = self._client.wait(self._request, self.inbox)
            self._events.append(event)
            if event.finish_reason is not None:
                self.close()
                if self._request.error is not None:
                    raise self._request.error
            if event.text:
                return event.text
        raise StopIteration

    def finish(self) -> Completion:
        """Wait for the rest; returns the whole answer."""
        for _ in self:
            pass
        return self.completion

    def close(self) -> None:
        """Generate no more."""
        if not self._ended:
            self._ended = True
            self._client.drop(self._request.id)

    def __del__(self) -> None:
        self.close()

    @property
    def completion(self) -> Completion:
        """The answer as far as it was read; its finish reason is "cancelled" if that is not to its end.

        Another thread may read on meanwhile.
        """
        events, r = list(self._events), self._request
        tokens = [token for event in events for token in event.tokens]
        reason: FinishReason = (events[-1].finish_reason if events else None) or "cancelled"
        first = r.first_token_s or r.added_s
        last = r.last_token_s or first
        n_prompt, n_cached = len(r.prompt_tokens), r.num_cached or 0
        timings = Timings(n_prompt, len(tokens), first - r.added_s, last - first, n_cached)
        return Completion("".join(event.text for event in events), tokens, reason, n_prompt, n_cached, timings,
                          r.params.seed)
