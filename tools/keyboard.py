"""What the keyboard does while a program works: Ctrl-C, and everything else."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def ctrl_c_calls(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `stop` meanwhile, so that no computation is torn apart."""
    with _sigint_handler(lambda number, frame: stop()):
        yield


@contextlib.contextmanager
def ctrl_c_once() -> Iterator[None]:
    """The first Ctrl-C interrupts, as usual; hasty ones behind it must not interrupt the cleaning up."""
    is_first = True

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            raise KeyboardInterrupt

    with _sigint_handler(interrupt):
        yield


@contextlib.contextmanager
def _sigint_handler(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Let `handler` have the signal, where it is this program's: a parent may have it ignored (`trap '' INT`, nohup),
    and a handler that Python does not know could not be put back."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous in (signal.SIG_IGN, None):
        yield
        return
    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


@contextlib.contextmanager
def hidden_keys() -> Iterator[None]:
    """What is typed meanwhile is not shown, where it would tear the output apart; it waits for who reads next."""
    with _terminal_without("ECHO"):
        yield


@contextlib.contextmanager
def single_keys() -> Iterator[Callable[[float], str]]:
    """Yields a function that waits up to so many seconds for a key and returns it, or "". Keys are not shown meanwhile.

    Without a terminal that is this program's it only waits.
    """
    with _terminal_without("ECHO", "ICANON") as is_ours:
        yield _wait_for_key if is_ours else _wait


def _wait(timeout_s: float) -> str:
    time.sleep(timeout_s)
    return ""


def _wait_for_key(timeout_s: float) -> str:
    if sys.platform == "win32":
        import msvcrt

        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            if msvcrt.kbhit():
                return msvcrt.getwch()
            time.sleep(0.05)
        return ""
    terminal = sys.stdin.fileno()
    if not select.select([terminal], [], [], timeout_s)[0]:
        return ""
    key = os.read(terminal, 1)
    if not key:                 # the terminal is gone: there will be no key any more
        time.sleep(timeout_s)
    return key.decode("utf-8", "replace")


@contextlib.contextmanager
def _terminal_without(*flags: str) -> Iterator[bool]:
    """Switch off local flags of termios for stdin; yields whether it is a terminal that this program may read.

    In the background the terminal is another program's, and who changes it is stopped (SIGTTOU).
    """
    if sys.stdin is None or not sys.stdin.isatty():
        yield False
        return
    if sys.platform == "win32":
        yield True
        return
    import termios

    terminal = sys.stdin.fileno()
    if not _is_in_foreground(terminal):
        yield False
        return
    before = termios.tcgetattr(terminal)
    during = [*before]
    for flag in flags:
        during[3] &= ~getattr(termios, flag)
    termios.tcsetattr(terminal, termios.TCSANOW, during)
    try:
        yield True
    finally:
        if _is_in_foreground(terminal):         # Ctrl-Z and bg, meanwhile
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def _is_in_foreground(terminal: int) -> bool:
    """Whether what is typed on this terminal is for this process."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:         # it is no terminal of this session
        return False
