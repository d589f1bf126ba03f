"""Worker processes that compile kernels into the disk cache: `compile.py` runs in each of them."""

import logging
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from ggpy import config
from ggpy.errors import KernelError
from ggpy.kernels.cpu.cache import PACKAGE, modules_of, source_bytes
from ggpy.kernels.cpu.level import current_level
from ggpy.machine import usable_cores

Progress = Callable[[str, int, int], None]      # kernel just finished ("" at first), how many are done, of how many

MAX_IDLE = 8        # workers that wait for something to compile; each takes some 100 MB
AWAKE_S = 0.1       # who waits to start a worker looks so often whether there is still something for it
# the folder of ggpy comes last, and the current folder not at all: nothing in it may pass for a module
COMMAND = "import sys; sys.path.append(sys.argv[1]); from ggpy.kernels.cpu.compile import main; main()"

logger = logging.getLogger("ggpy")
_slots = threading.BoundedSemaphore(usable_cores())     # every worker has one until it ends
_idle: list["Worker"] = []                              # workers that nobody uses yet
_waking = threading.Lock()


class Pending:
    """Kernels that wait for a worker."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = list(names)
        self._begun: set[str] = set()           # modules of which a worker has taken a kernel
        self._lock = threading.Lock()

    def take(self, known: set[str]) -> str | None:
        """The next kernel for a worker that has compiled the modules `known`; None: there are no more.

        `known` grows by the modules of the kernel returned. Best is one of modules that are known already, for their
        functions cost nothing; then one of a module that is nobody's; then that with the most source, which would keep
        everyone waiting if it came last.
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


class Worker:
    """A process that compiles kernels, one at a time. It begins with reading Numba in, which takes a while."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", "-c", COMMAND, str(PACKAGE.parent)]
        environment = {**os.environ, "NUMBA_OPT": "0", "NUMBA_LOOP_VECTORIZE": "0", "NUMBA_SLP_VECTORIZE": "0",
                       **config.with_cpu_level(current_level().name)}      # it might be allowed another one
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


def compile_kernels(names: list[str], progress: Progress | None) -> None:
    """Compiles `names` in worker processes, each asking for another kernel when it is done with one.

    In all, idle ones among them, there are no more of them than cores, whoever has something to compile. Raises
    KernelError with the compiler's own words if a kernel cannot be made.
    """
    logger.info("compiling %d kernels: %s", len(names), " ".join(names))
    pending = Pending(names)
    done: list[str] = []
    if progress is not None:
        progress("", 0, len(names))

    def report(name: str) -> None:
        done.append(name)
        if progress is not None:
            progress(name, len(done), len(names))

    n_workers = min(usable_cores(), len(names))
    workers: list[Worker] = []
    with ThreadPoolExecutor(n_workers) as pool:
        try:
            for future in [pool.submit(_run_worker, pending, report, workers) for _ in range(n_workers)]:
                future.result()
        except BaseException:       # above all Ctrl-C, which a compiler hears only after seconds
            pending.clear()
            for worker in workers:
                worker.kill()
            raise


@contextmanager
def idle_workers() -> Iterator[None]:
    """Start workers now, as far as there are slots, so that they are ready when it is known what to compile. Those that
    nobody has used end with it."""
    started = []
    try:
        with _waking:
            while len(_idle) < min(usable_cores(), MAX_IDLE) and _slots.acquire(blocking=False):
                started.append(_start())
                _idle.append(started[-1])
        yield
    finally:
        for worker in started:
            with suppress(ValueError):          # somebody has it
                _idle.remove(worker)
                worker.kill()
                _end(worker)


def _start() -> Worker:
    """A worker with the slot that the caller has taken."""
    try:
        return Worker()
    except BaseException:
        _slots.release()
        raise


def _end(worker: Worker) -> tuple[int, str]:
    try:
        return worker.end()
    finally:
        _slots.release()


def _take_worker(pending: Pending) -> Worker | None:
    """An idle worker, or a new one when there is a slot for it; None: nothing is left to compile."""
    while pending.has_more:
        with suppress(IndexError):
            return _idle.pop()
        if _slots.acquire(timeout=AWAKE_S):
            if pending.has_more:
                return _start()
            _slots.release()
    return None


def _run_worker(pending: Pending, report: Callable[[str], None], workers: list[Worker]) -> None:
    """Hands kernels to one worker process until none is left; raises KernelError if the process ends before."""
    worker = _take_worker(pending)
    if worker is None:
        return
    workers.append(worker)
    known: set[str] = set()
    name = None
    try:
        while (name := pending.take(known)) is not None and worker.compile(name):
            report(name)
    finally:
        code, text = _end(worker)
    if code != 0:
        pending.clear()
        logger.debug("%s", text)
        last = text.strip().splitlines()[-1:] or [f"the compiler ended with code {code}"]
        raise KernelError(f"cannot compile kernel {name}: {last[0]}")
