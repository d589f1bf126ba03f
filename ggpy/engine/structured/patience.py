"""Threads that compile: with a deep stack, and given up when they take too long, for compiled code has no interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

from ggpy.errors import GrammarError

STACK_BYTES = 64 << 20      # the compiler recurses along references and rules
MAX_S = 20.0                # of one compilation; that of a large schema takes about one
MAX_LOST = 3                # compilations nobody waits for: each has a processor, and 25 MB more every second

T = TypeVar("T")
_stack_size_lock = threading.Lock()


class _DeepThread(threading.Thread):
    """A thread with a deep stack."""

    def start(self) -> None:
        with _stack_size_lock:
            before = threading.stack_size(STACK_BYTES)
            try:
                super().start()
            finally:
                threading.stack_size(before)


def in_deep_stack(work: Callable[[], T]) -> T:
    """The result of `work`, done by a thread that may recurse deeper than others. Raises what it does."""
    if isinstance(threading.current_thread(), _DeepThread):
        return work()
    thread, outcome = _started(work)
    thread.join()
    return outcome()


def _started(work: Callable[[], T]) -> tuple[threading.Thread, Callable[[], T]]:
    """A thread that does `work`, and what gives its result or raises its error once it has ended."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:          # a panic of compiled code is no Exception
            errors.append(error)

    def outcome() -> T:
        if errors:
            raise errors[0]
        return results[0]

    thread = _DeepThread(target=run, name="ggpy-grammar", daemon=True)
    thread.start()
    return thread, outcome


class Patience:
    """Waits for compilations, for MAX_S each. Any thread may ask it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lost: list[tuple[Hashable, threading.Thread]] = []

    def wait_for(self, key: Hashable, work: Callable[[], T]) -> T:
        """The result of `work`, which compiles what `key` names, in a thread with a deep stack.

        Raises what it does, and GrammarError if it takes too long: then it goes on alone, and until it ends nothing is
        compiled for the same key. Nor is anything else while MAX_LOST of them go on.
        """
        with self._lock:
            self._lost = [(key, thread) for key, thread in self._lost if thread.is_alive()]
            if any(lost == key for lost, _ in self._lost):
                raise GrammarError(_too_long())
            if len(self._lost) >= MAX_LOST:
                raise GrammarError(f"{len(self._lost)} others take longer than {MAX_S:g} s each to compile; no new one "
                                   "is begun until one of them ends")
        thread, outcome = _started(work)
        thread.join(MAX_S)
        if thread.is_alive():
            with self._lock:
                self._lost.append((key, thread))
            raise GrammarError(_too_long())
        return outcome()


def _too_long() -> str:
    return f"this takes longer than {MAX_S:g} s to compile; expected fewer patterns, repetitions and choices in it"
