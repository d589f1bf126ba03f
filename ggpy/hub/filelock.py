"""A lock between processes on this machine, held by an open file and released even when its holder is killed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_S = 0.2

if sys.platform == "win32":
    import msvcrt

    def _try_lock(fd: int) -> None:
        msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def _try_lock(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


@contextmanager
def exclusive(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the lock file `path` alone; while another process has it, call `on_wait` once and wait.

    The file itself stays: deleting it would let two processes lock two files of one name.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        waited = False
        while True:
            try:
                _try_lock(file.fileno())
                break
            except (BlockingIOError, PermissionError):      # held: POSIX says the first, Windows the second
                if not waited:
                    on_wait()
                    waited = True
                time.sleep(POLL_S)
        yield       # closing the file releases the lock
