"""A lock that goes to whoever has waited longest."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType


class FairLock:
    """Threads get it in the order in which they came.

    With threading.Lock, a thread that steps the engine in a loop would get the lock back before those that wait.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._gates: deque[threading.Lock] = deque()        # one for each thread that waits; opened by `release`

    def acquire(self) -> None:
        """Wait for the lock. An exception meanwhile, such as that of Ctrl-C, leaves the queue to the others."""
        with self._mutex:
            if not self._held:
                self._held = True
                return
            gate = threading.Lock()
            gate.acquire()
            self._gates.append(gate)
        try:
            gate.acquire()
        except BaseException:           # Ctrl-C while waiting: leave the queue, or pass on what just came
            with self._mutex:
                was_waiting = gate in self._gates
                if was_waiting:
                    self._gates.remove(gate)
            if not was_waiting:
                self.release()
            raise

    def release(self) -> None:
        """Hand the lock to whoever has waited longest, if anyone does."""
        with self._mutex:
            if self._gates:
                self._gates.popleft().release()         # stays held: it changes hands
            else:
                self._held = False

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()
