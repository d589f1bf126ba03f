"""The thread team: one parallel region per forward pass.

Worker threads live inside `worker`, compiled code without the GIL, for as long as the team lives: they spin briefly for
the next tape, then sleep in the kernel. The caller is thread 0 and walks the tape with them. A tape is a flat array of
(kernel address, argument block, barrier, items) rows. The barrier flag says that the next entry must see all that was
done so far. An entry is cut into `items` (0: as many as there are threads), which the threads claim one by one: the
kernel is called with the number of the item and how many there are.
"""

import ctypes
import os
import threading
import weakref
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from ggpy.errors import KernelError
from ggpy.kernels.cpu.address import address_of

LINE = 64           # bytes of a cache line: fields that different threads write stand on lines of their own
DONE, JOB, STOP, SLEEPERS, TAPE, LENGTH, STEP_ADDRESS, TRACE, PROGRESS, STEPS = range(0, 10 * LINE, LINE)
TAPE_WORDS = 4      # int64 of a tape entry
TAPE_BYTES = 8 * TAPE_WORDS
PROGRESS_BYTES = 16
STEP_BYTES = 2 * LINE       # of a thread's copy of the step descriptor
MAX_ENTRIES = 4096  # of a tape that is run in one go
_ENTRY = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)


class Team:
    """`n_threads` threads that run tapes together, the calling one included.

    `entries` are the addresses of the kernels "executor.run" and "executor.worker".
    """

    def __init__(self, n_threads: int, entries: dict[str, int]) -> None:
        self.n_threads = n_threads
        self._owner = os.getpid()
        self._memory = np.zeros(16 * LINE // 8, np.int64)
        self._state = (self._memory.ctypes.data + LINE - 1) & -LINE
        self._first = (self._state - self._memory.ctypes.data) // 8
        self._progress = np.zeros(MAX_ENTRIES * PROGRESS_BYTES // 8, np.int64)
        self._field(PROGRESS, self._progress.ctypes.data)
        self._steps = np.zeros(n_threads * STEP_BYTES // 8, np.int64)
        self._field(STEPS, self._steps.ctypes.data)
        self._run = _ENTRY(entries["executor.run"])
        worker = _ENTRY(entries["executor.worker"])
        held = (self._memory, self._progress, self._steps)
        threads = [threading.Thread(target=_work, args=(held, worker, self._state, i, n_threads), name=f"ggpy-{i}",
                                    daemon=True) for i in range(1, n_threads)]
        for thread in threads:
            thread.start()
        # also when the team is dropped without being closed: threads must not outlive what they would work on
        self._end = weakref.finalize(self, _end, self._memory, self._state, self._run, threads, self._owner)

    def run(self, tape: npt.NDArray[np.int64], step: int, trace: npt.NDArray[np.int64] | None = None) -> None:
        """Runs `tape` (n, TAPE_WORDS) on the step descriptor at address `step` and returns when all of it is done.

        `trace` (n, n_threads, 2) receives the cycle counter at the start and end of each entry in each thread; what it
        held before stays where a thread had no part in an entry.
        """
        if os.getpid() != self._owner:
            raise KernelError("this engine was made before a fork; make a new one in the child process")
        if not self._end.alive:
            raise KernelError("this engine is closed; make a new one")
        self._field(STEP_ADDRESS, step)
        length = len(tape)
        address = address_of(tape) if length else 0
        for start in range(0, length, MAX_ENTRIES):
            self._field(TAPE, address + start * TAPE_BYTES)
            self._field(LENGTH, min(MAX_ENTRIES, length - start))
            self._field(TRACE, 0 if trace is None else trace[start:].ctypes.data)
            self._run(self._state, step, 0, self.n_threads)

    def close(self) -> None:
        """Ends the worker threads; the team cannot run again."""
        self._end()

    def _field(self, offset: int, value: int) -> None:
        self._memory[self._first + offset // 8] = value

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        self.close()


def _work(held: tuple[npt.NDArray[np.int64], ...], worker: Any, state: int, ith: int, n_threads: int) -> None:
    """A worker thread's life. What is `held` is known by address there."""
    worker(state, 0, ith, n_threads)


def _end(memory: npt.NDArray[np.int64], state: int, run: Any, threads: list[threading.Thread], owner: int) -> None:
    """Sends the workers home; a forked child has none."""
    if os.getpid() != owner:
        return
    _set_field(memory, state, STOP, 1)
    _set_field(memory, state, LENGTH, 0)
    run(state, 0, 0, len(threads) + 1)
    for thread in threads:
        thread.join()


def _set_field(memory: npt.NDArray[np.int64], state: int, offset: int, value: int) -> None:
    memory[(state + offset - memory.ctypes.data) // 8] = value
