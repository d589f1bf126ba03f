"""Kernels by name: loaded from the disk cache into the process, compiled first if they are not there.

Compiling happens in worker processes (see `compile_workers.py`); loading needs llvmlite alone, never Numba.
"""

import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from ggpy import config
from ggpy.errors import KernelError
from ggpy.kernels.cpu.cache import cache_folder, object_path, read_object
from ggpy.kernels.cpu.compile_workers import Progress as Progress
from ggpy.kernels.cpu.compile_workers import compile_kernels, idle_workers

TEAM_KERNELS = ("executor.run", "executor.worker")      # of every model

_engines: list[Any] = []                        # JIT engines own the code for the life of the process
_addresses: dict[str, int] = {}
_compiling: dict[str, threading.Event] = {}     # kernels that a thread compiles; it sets the event at the end
_compiling_lock = threading.Lock()


def addresses(names: Iterable[str], progress: Progress | None = None) -> dict[str, int]:
    """Entry points of the named kernels, compiling those that the cache lacks. Any thread may call it.

    `progress` is told of what this call compiles, as opposed to another one at the same time. Raises KernelError with
    the compiler's own words if a kernel cannot be made.
    """
    wanted = list(dict.fromkeys(names))
    lacking = missing(wanted)
    if lacking:
        _require_folder()
        _compile_once(lacking, progress)
    with interrupts_later():
        for name in wanted:
            if name not in _addresses:
                _addresses[name] = _load(object_path(name))
    return {name: _addresses[name] for name in wanted}


def missing(names: Iterable[str]) -> list[str]:
    """Those of the named kernels that would have to be compiled, which takes seconds."""
    return [name for name in names if name not in _addresses and read_object(object_path(name)) is None]


def compilers_awake() -> AbstractContextManager[None]:
    """Within it, compilers get ready before it is known what to compile, if what every model needs is not there."""
    return idle_workers() if missing(TEAM_KERNELS) else nullcontext()


@contextmanager
def interrupts_later() -> Iterator[None]:
    """Keep Ctrl-C until the end: within llvmlite, which holds a lock of its own, it would leave that locked."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield               # signals interrupt the main thread alone, and nobody if they are ignored
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    for number, frame in received[:1]:
        handler(number, frame)


def _require_folder() -> None:
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise KernelError(f"{folder}: compiled kernels cannot be kept here ({error.strerror}); "
                          f"{config.write_advice(error)}") from error


def _load(path: Path) -> int:
    import llvmlite.binding as llvm

    code = read_object(path)
    if code is None:
        raise KernelError(f"{path}: the kernel is not there after compiling it; were ggpy's sources changed, or its "
                          "cache deleted, meanwhile? Run it again")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address("ggpy_kernel"))


def _compile_once(names: list[str], progress: Progress | None) -> None:
    """Has `names` compiled, but waits for those that other threads compile already.

    If another thread fails, or is interrupted, it is this one's turn, so that each gets the error of its own kernels.
    """
    while True:
        mine: list[str] = []
        try:
            others = _claim(names, mine)
            if mine:
                compile_kernels(mine, progress)
        finally:
            for name in mine:
                _compiling.pop(name).set()
        if not others:
            return
        names = list(others)
        for compiled in others.values():
            compiled.wait()


def _claim(names: list[str], mine: list[str]) -> dict[str, threading.Event]:
    """Puts those of `names` into `mine` that nobody compiles; returns the others, with what their ends will set."""
    others = {}
    with _compiling_lock:
        for name in names:
            if (compiled := _compiling.get(name)) is not None:
                others[name] = compiled
            elif missing([name]):           # who compiled it meanwhile has put it there before leaving
                _compiling[name] = threading.Event()
                mine.append(name)
    return others
