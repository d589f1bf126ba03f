"""The kernel cache: compile once, load without Numba, distrust damaged files, name what fails."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ggpy.errors import ConfigError, KernelError
from ggpy.kernels.cpu import compile_workers, object_loader
from ggpy.kernels.cpu.cache import object_path, read_object, write_object
from ggpy.kernels.cpu.level import LEVELS, available_levels, current_level


def test_loading_from_the_cache_needs_no_numba() -> None:
    """A second process finds the compiled kernel and never imports Numba."""
    object_loader.addresses(["executor.run"])
    script = ("import sys; from ggpy.kernels.cpu import object_loader; object_loader.addresses(['executor.run']);"
              "print('numba' in sys.modules)")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_damaged_object_counts_as_absent(tmp_path: Path) -> None:
    """A file cut short or changed is not loaded."""
    path = tmp_path / "k.o"
    write_object(path, b"machine code")
    assert read_object(path) == b"machine code"
    path.write_bytes(path.read_bytes()[:-1])
    assert read_object(path) is None
    assert read_object(tmp_path / "absent.o") is None


def test_unknown_kernel_is_an_error_that_names_it() -> None:
    """Asking for a kernel that no module has says which one."""
    with pytest.raises(KernelError, match=r"quantize\.nonsense"):
        object_loader.addresses(["quantize.nonsense"])


def test_level_must_be_one_the_machine_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """GGPY_CPU picks a level; a wrong one lists those that exist here."""
    monkeypatch.setenv("GGPY_CPU", "portable")
    assert current_level().name == "portable"
    monkeypatch.setenv("GGPY_CPU", "quantum")
    with pytest.raises(ConfigError, match="portable"):
        current_level()


def test_available_levels_end_with_the_portable_one() -> None:
    """Whatever the processor, there is a level that asks nothing of it."""
    assert available_levels()[-1].name == "portable"
    assert len({(level.machine, level.name) for level in LEVELS}) == len(LEVELS)


def test_object_is_named_by_the_sources_it_is_made_of() -> None:
    """Kernels of one module share a name's hash, kernels of another have their own."""
    add, scale, norm = (object_path(name).stem.rpartition("-")[2]
                        for name in ("elementwise.add", "elementwise.scale", "norm.rms"))
    assert add == scale != norm


def test_a_worker_keeps_to_modules_that_it_has_compiled() -> None:
    """Their functions cost nothing any more; others begin with what nobody has begun."""
    pending = compile_workers.Pending(["norm.rms", "sample_order.sort", "q4_1.pack", "q4_1.linear"])
    first: set[str] = set()
    second: set[str] = set()
    taken = [pending.take(known) for known in (first, second, first, second, second)]
    assert taken[0] == "q4_1.pack"
    assert taken[1] != "q4_1.linear"
    assert taken[2] == "q4_1.linear"
    assert {taken[1], taken[3]} == {"norm.rms", "sample_order.sort"}
    assert taken[4] is None


def test_a_folder_that_takes_no_files_is_an_error_that_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GGPY_HOME in a place where nothing can be written."""
    (tmp_path / "kernels").write_text("in the way")
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(object_loader, "_addresses", {})
    with pytest.raises(KernelError, match="set GGPY_HOME to a folder that you can write to"):
        object_loader.addresses(["elementwise.scale"])


def test_compiling_imports_nothing_of_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's numbers.py is not Python's."""
    (tmp_path / "numbers.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GGPY_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(object_loader, "_addresses", {})
    assert object_loader.addresses(["elementwise.take_rows"])["elementwise.take_rows"] != 0


class Compilers:
    """In place of worker processes: they note what they begin, wait for the gate and write some kernel's code."""

    def __init__(self, code: bytes) -> None:
        self.code = code
        self.begun: list[str] = []
        self.n_at_once = self.n_most = 0
        self.gate, self.reached = threading.Event(), threading.Event()
        self.broken: set[str] = set()
        self.lock = threading.Lock()

    def worker(self) -> "CompilerThread":
        with self.lock:
            self.n_at_once += 1
            self.n_most = max(self.n_most, self.n_at_once)
        return CompilerThread(self)


class CompilerThread:
    """One of them, with the methods of a worker."""

    def __init__(self, compilers: Compilers) -> None:
        self.compilers = compilers
        self.code, self.error = 0, ""

    def compile(self, name: str) -> bool:
        self.compilers.begun.append(name)
        self.compilers.reached.set()
        assert self.compilers.gate.wait(30)
        if name in self.compilers.broken:
            self.code, self.error = 1, "it is broken"
            return False
        write_object(object_path(name), self.compilers.code)
        return True

    def kill(self) -> None:
        self.code = -9

    def end(self) -> tuple[int, str]:
        with self.compilers.lock:
            self.compilers.n_at_once -= 1
        return self.code, self.error


@pytest.fixture
def compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compilers:
    """At most two of them, and a cache that has "elementwise.add" alone."""
    object_loader.addresses(["elementwise.add"])
    code = read_object(object_path("elementwise.add"))
    assert code is not None
    found = Compilers(code)
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(object_loader, "_addresses", {})
    monkeypatch.setattr(compile_workers, "usable_cores", lambda: 2)
    monkeypatch.setattr(compile_workers, "_slots", threading.BoundedSemaphore(2))
    monkeypatch.setattr(compile_workers, "Worker", found.worker)
    write_object(object_path("elementwise.add"), code)
    return found


def asked(*names: str) -> Future[dict[str, int]]:
    """The addresses of `names`, which a thread of its own asks for."""
    answer: Future[dict[str, int]] = Future()

    def ask() -> None:
        try:
            answer.set_result(object_loader.addresses(names))
        except KernelError as error:
            answer.set_exception(error)

    threading.Thread(target=ask, daemon=True).start()
    return answer


def test_threads_that_want_the_same_kernels_compile_each_once(compilers: Compilers) -> None:
    """And all of them get it."""
    names = ["elementwise.scale", "norm.rms", "quantize.quantize"]
    answers = [asked(*names[i % 3 :], *names[: i % 3]) for i in range(6)]
    assert compilers.reached.wait(30)
    compilers.gate.set()
    assert all(set(answer.result(30)) == set(names) for answer in answers)
    assert sorted(compilers.begun) == names


def test_threads_share_the_cores(compilers: Compilers) -> None:
    """However many want different kernels."""
    answers = [asked(name) for name in ("elementwise.scale", "norm.rms", "quantize.quantize", "rope.half")]
    assert compilers.reached.wait(30)
    compilers.gate.set()
    for answer in answers:
        answer.result(30)
    assert len(compilers.begun) == 4
    assert compilers.n_most <= 2


def test_a_kernel_that_is_there_does_not_wait_for_those_that_are_compiled(compilers: Compilers) -> None:
    """All workers are busy meanwhile."""
    answer = asked("elementwise.scale", "norm.rms")
    assert compilers.reached.wait(30)
    assert asked("elementwise.add").result(30)["elementwise.add"] != 0
    assert not answer.done()
    compilers.gate.set()
    answer.result(30)


def test_a_thread_compiles_what_another_failed_to(compilers: Compilers, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not get the error of a kernel that it never asked for."""
    compilers.broken.add("elementwise.scale")
    monkeypatch.setattr(compile_workers, "_slots", threading.BoundedSemaphore(1))
    first = asked("elementwise.scale", "norm.rms")
    assert compilers.reached.wait(30)
    second = asked("norm.rms")
    compilers.gate.set()
    with pytest.raises(KernelError, match=r"elementwise\.scale"):
        first.result(30)
    assert set(second.result(30)) == {"norm.rms"}


def test_ctrl_c_waits_for_kernels_to_be_loaded() -> None:
    """The interrupt comes when the block ends, once, however often the key was pressed."""
    events = []
    with handler_of_ctrl_c(lambda *_: events.append("interrupt")), object_loader.interrupts_later():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        events.append("end")
    assert events == ["end", "interrupt"]


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    """As under `trap '' INT` or nohup."""
    with handler_of_ctrl_c(signal.SIG_IGN), object_loader.interrupts_later():
        signal.raise_signal(signal.SIGINT)


@contextmanager
def handler_of_ctrl_c(handler: Any = signal.default_int_handler) -> Iterator[None]:
    """SIGINT has `handler` meanwhile, whatever the tests were started with."""
    previous = signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def test_workers_that_are_awake_compile_and_those_without_work_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start of two workers for one kernel leaves none behind."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(object_loader, "_addresses", {})
    monkeypatch.setattr(compile_workers, "usable_cores", lambda: 2)
    monkeypatch.setattr(compile_workers, "_slots", threading.BoundedSemaphore(2))
    with object_loader.compilers_awake():
        started = list(compile_workers._idle)
        object_loader.addresses(["elementwise.take_rows"])
        assert len(compile_workers._idle) == 1
    assert compile_workers._idle == []
    assert sorted(worker._process.returncode == 0 for worker in started) == [False, True]


@pytest.mark.parametrize(("n_cores", "n_idle"), [(64, 8), (3, 3)])
def test_so_many_workers_wake_however_many_models_are_loaded(
    compilers: Compilers, monkeypatch: pytest.MonkeyPatch, n_cores: int, n_idle: int
) -> None:
    """Two models that load at the same time share eight, or as many as there are cores."""
    monkeypatch.setattr(compile_workers, "usable_cores", lambda: n_cores)
    monkeypatch.setattr(compile_workers, "_slots", threading.BoundedSemaphore(n_cores))
    with object_loader.compilers_awake(), object_loader.compilers_awake():
        assert compilers.n_at_once == n_idle
    assert (compilers.n_at_once, compile_workers._idle) == (0, [])


def test_idle_workers_count_among_those_of_the_cores(compilers: Compilers) -> None:
    """Kernels of several threads are compiled by the two that are awake, and no other is started."""
    with object_loader.compilers_awake():
        assert compilers.n_at_once == 2
        answers = [asked(name) for name in ("elementwise.scale", "norm.rms", "quantize.quantize", "rope.half")]
        assert compilers.reached.wait(30)
        compilers.gate.set()
        for answer in answers:
            answer.result(30)
    assert (compilers.n_at_once, compilers.n_most) == (0, 2)
    assert len(compilers.begun) == 4


def test_no_worker_wakes_if_the_kernels_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warm start never imports Numba, in no process."""
    object_loader.addresses(object_loader.TEAM_KERNELS)
    with object_loader.compilers_awake():
        assert compile_workers._idle == []
