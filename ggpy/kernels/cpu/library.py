"""Kernels by name: loaded from the disk cache into the process, compiled first if they are not there.

Compiling happens in worker processes; loading needs llvmlite alone, never Numba.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from ggpy import config
from ggpy.errors import KernelError
from ggpy.kernels.cpu.cache import PACKAGE, cache_folder, modules_of, object_path, read_object, source_bytes
from ggpy.machine import usable_cores

Progress = Callable[[str, int, int], None]      # kernel just finished ("" at first), how many are done, of how many

TEAM_KERNELS = ("executor.run", "executor.worker")      # of every model
AWAKE_S = 0.1       # who waits to start a worker looks so often whether there is still something for it
# the folder of ggpy comes last, and the current folder not at all: nothing in it may pass for a module
WORKER = "import sys; sys.path.append(sys.argv[1]); from ggpy.kernels.cpu.compile import main; main()"

logger = logging.getLogger("ggpy")
_engines: list[Any] = []                        # JIT engines own the code for the life of the process
_addresses: dict[str, int] = {}
_compiling: dict[str, threading.Event] = {}     # kernels that a thread compiles; it sets the event at the end
_compiling_lock = threading.Lock()
_idle: list["_Worker"] = []                     # workers that nobody uses yet
_worker_slots = threading.BoundedSemaphore(usable_cores())


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


class _Pending:
    """Kernels that wait for a worker."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._begun: set[str] = set()           # modules of which a worker has taken a kernel
        self._lock = threading.Lock()

    def take(self, known: set[str]) -> str | None:
        """The next kernel for a worker that has compiled kernels made of the modules `known`, which is told of more;
        None: there are no more.

        Best is one of the same modules, for functions that the worker has compiled cost nothing; then one of a module
        that is nobody's; then that with the most source, which would keep everyone waiting if it came last.
        """
        def worth(name: str) -> tuple[bool, bool, int]:
            modules = modules_of(name)
            return modules <= known, name.partition(".")[0] not in self._begun, source_bytes(modules)

        with self._lock:
            if not self._names:
                return None
            name = max(self._names, key=worth)
            self._names.remove(name)
            self._begun.add(name.partition(".")[0])
        known |= modules_of(name)
        return name

    @property
    def has_more(self) -> bool:
        return bool(self._names)

    def clear(self) -> None:
        with self._lock:
            self._names.clear()


def _compile_once(names: list[str], progress: Progress | None) -> None:
    """Has `names` compiled, but waits for those that other threads compile already.

    If another thread fails, or is interrupted, it is this one's turn, so that each gets the error of its own kernels.
    """
    while True:
        mine: list[str] = []
        try:
            others = _claim(names, mine)
            if mine:
                _compile(mine, progress)
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


def _compile(names: list[str], progress: Progress | None) -> None:
    """Compiles `names` in worker processes, each asking for another kernel when it is done with one.

    In all there are no more of them than cores, whoever has something to compile.
    """
    logger.info("compiling %d kernels: %s", len(names), " ".join(names))
    pending = _Pending(names)
    done: list[str] = []
    if progress is not None:
        progress("", 0, len(names))

    def report(name: str) -> None:
        done.append(name)
        if progress is not None:
            progress(name, len(done), len(names))

    n_workers = min(usable_cores(), len(names))
    workers: list[_Worker] = []
    with ThreadPoolExecutor(n_workers) as pool:
        try:
            for future in [pool.submit(_run_worker, pending, report, workers) for _ in range(n_workers)]:
                future.result()
        except BaseException:       # above all Ctrl-C, which a compiler hears only after seconds
            pending.clear()
            for worker in workers:
                worker.kill()
            raise


class _Worker:
    """A process that compiles kernels, one at a time. It begins with reading Numba in, which takes a while."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-c", WORKER, str(PACKAGE.parent)]
        environment = {**os.environ, "NUMBA_OPT": "0", "NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0"}
        self._errors = tempfile.TemporaryFile("w+")         # noqa: SIM115, `end` closes it
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._errors, text=True, bufsize=1)

    def compile(self, name: str) -> bool:
        """Whether the kernel is in the cache now; if not, the process has died."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(f"{name}\n")
            return self._process.stdout.readline().strip() == name
        return False

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> tuple[int, str]:
        """Lets the process end; returns its exit code and what it wrote to standard error."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        with self._process, self._errors:
            code = self._process.wait()
            self._errors.seek(0)
            return code, self._errors.read()


@contextmanager
def workers_awake() -> Iterator[None]:
    """Start workers now if what every model needs is not in the cache, so that they are ready when it is known what
    else to compile. Those that nobody has used end with it."""
    started = [_Worker() for _ in range(usable_cores())] if missing(TEAM_KERNELS) else []
    _idle.extend(started)
    try:
        yield
    finally:
        for worker in started:
            with suppress(ValueError):          # somebody has it
                _idle.remove(worker)
                worker.kill()
                worker.end()


def _run_worker(pending: _Pending, report: Callable[[str], None], workers: list[_Worker]) -> None:
    """Hands kernels to one worker process until none is left; raises KernelError if the process ends before."""
    while not _worker_slots.acquire(timeout=AWAKE_S):
        if not pending.has_more:
            return
    try:
        if pending.has_more:
            _hand_out(pending, report, workers)
    finally:
        _worker_slots.release()


def _hand_out(pending: _Pending, report: Callable[[str], None], workers: list[_Worker]) -> None:
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    workers.append(worker)
    known: set[str] = set()
    while (name := pending.take(known)) is not None and worker.compile(name):
        report(name)
    code, text = worker.end()
    if code != 0:
        pending.clear()
        logger.debug("%s", text)
        last = text.strip().splitlines()[-1:] or [f"the compiler ended with code {code}"]
        raise KernelError(f"cannot compile kernel {name}: {last[0]}")
