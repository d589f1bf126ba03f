"""An answer that is computed while its reader is free to do something else, above all to stop waiting."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ggpy.engine.completion import Completion, Timings

if TYPE_CHECKING:
    from ggpy.llm import CompletionStream

AWAKE_S = 0.1       # on Windows a thread that waits hears of Ctrl-C only when it wakes up


class Answer(Iterator[str]):
    """The pieces of the stream that `start` opens, read in another thread, which also opens it.

    Opening it encodes the prompt, which cannot be torn apart and may take long; this thread never waits for that.
    Raises what the other thread's work raised.
    """

    def __init__(self, start: Callable[[], CompletionStream]) -> None:
        self._start = start
        self._stream: CompletionStream | None = None
        self._stopped = False
        self._arrived: queue.SimpleQueue[str | BaseException | None] = queue.SimpleQueue()      # None: the end
        self._n_read = 0                        # characters
        self._completion: Completion | None = None
        self._thread = threading.Thread(target=self._work, name="answer", daemon=True)
        self._thread.start()

    def __next__(self) -> str:
        if self._completion is not None:
            raise StopIteration
        arrived = self._wait()
        if isinstance(arrived, BaseException):
            raise arrived
        if arrived is None:
            rest = self.completion.text[self._n_read :]     # what a last step brought, if it was stopped just then
            if not rest:
                raise StopIteration
            return rest
        self._n_read += len(arrived)
        return arrived

    @property
    def n_read(self) -> int:
        """How many tokens of the prompt the model has read so far."""
        return self._stream.n_read if self._stream is not None else 0

    def stop(self) -> None:
        """End the answer at once, whatever the model does meanwhile; a signal handler may call this."""
        self._stopped = True
        if self._stream is not None:
            self._stream.close()
        self._arrived.put(None)

    @property
    def completion(self) -> Completion:
        """The answer; it is what it is when this is first asked for, so ask at the end or when it was stopped."""
        if self._completion is None:
            self._completion = self._stream.completion if self._stream is not None else Completion(
                "", [], "cancelled", Timings(0, 0, 0.0, 0.0))
        return self._completion

    def join(self) -> None:
        """Stop, and wait until the other thread has ended, which encoding a prompt may hold up."""
        self.stop()
        self._thread.join()

    def _wait(self) -> str | BaseException | None:
        while True:
            try:
                return self._arrived.get(timeout=AWAKE_S)
            except queue.Empty:
                continue

    def _work(self) -> None:
        try:
            self._stream = self._start()
            if self._stopped:               # before there was a stream to close
                self._stream.close()
            for piece in self._stream:
                self._arrived.put(piece)
            self._arrived.put(None)
        except BaseException as error:      # for the thread that waits
            self._arrived.put(error)
