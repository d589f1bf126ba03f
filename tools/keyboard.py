"""What the keyboard does while a program works: Ctrl-C, and everything else."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def ctrl_c_calls(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `stop` meanwhile, so that no computation is torn apart."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, lambda number, frame: stop())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def ctrl_c_once() -> Iterator[None]:
    """The first Ctrl-C interrupts, as usual; hasty ones behind it must not interrupt the cleaning up."""
    is_first = True

    def interrupt(number: int, frame: object) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def hidden_keys() -> Iterator[None]:
    """What is typed meanwhile is not shown, where it would tear the output apart; it waits for who reads next."""
    if sys.platform == "win32" or sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    during = [*before]
    during[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, during)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)
