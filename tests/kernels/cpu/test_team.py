"""The thread team: tapes run in order, threads meet at barriers, idle threads sleep, closing ends them."""

import os
import threading
import time

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.errors import KernelError
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import ADD, argument_block
from ggpy.kernels.cpu.step import STEP
from ggpy.kernels.cpu.team import MAX_ENTRIES, Team

N_ROWS, WIDTH = 64, 32


@pytest.fixture(scope="module")
def kernels() -> dict[str, int]:
    return object_loader.addresses(["executor.run", "executor.worker", "elementwise.add"])


class Doubling:
    """A tape of `n` additions x = x + x, each needing all of the one before."""

    def __init__(self, kernels: dict[str, int], n: int, n_items: int = 0) -> None:
        self.x = np.ones((N_ROWS, WIDTH), np.float32)
        address = int(self.x.ctypes.data)
        self.block = argument_block(ADD, a=address, b=address, width=WIDTH, out=address, n_rows=STEP.n_tokens)
        self.tape: npt.NDArray[np.int64] = np.array(
            [[kernels["elementwise.add"], self.block.ctypes.data, 1, n_items]] * n, np.int64)
        self.step = argument_block(STEP, **(dict.fromkeys(STEP._fields, 0) | {"n_tokens": N_ROWS}))

    def run(self, team: Team) -> None:
        team.run(self.tape, self.step.ctypes.data)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 5])
def test_every_entry_sees_the_one_before(kernels: dict[str, int], n_threads: int) -> None:
    """Twenty doublings give 2^20 everywhere, also with more threads than cores, run after run."""
    with Team(n_threads, kernels) as team:
        for _ in range(20):
            doubling = Doubling(kernels, 20)
            doubling.run(team)
            assert (doubling.x == 2.0**20).all()


@pytest.mark.parametrize("n_items", [1, 2, 7, 64, 200])
def test_an_entry_is_done_in_as_many_items_as_it_says(kernels: dict[str, int], n_items: int) -> None:
    """Fewer items than threads or more, or more than there are rows: each value is doubled once by each entry."""
    with Team(3, kernels) as team:
        doubling = Doubling(kernels, 20, n_items)
        doubling.run(team)
        assert (doubling.x == 2.0**20).all()


def test_a_thread_that_comes_late_does_no_harm(kernels: dict[str, int]) -> None:
    """With far more threads than cores most miss most runs; tapes of other lengths and memory follow one another."""
    with Team(24, kernels) as team:
        for i in range(300):
            doubling = Doubling(kernels, 1 + i % 5, n_items=1 + i % 3)
            doubling.run(team)
            assert (doubling.x == 2.0 ** (1 + i % 5)).all()


def test_a_tape_may_have_any_length(kernels: dict[str, int]) -> None:
    """Also more entries than the team keeps count of at once: so many ones are added up, none twice."""
    x, one = np.zeros((N_ROWS, WIDTH), np.float32), np.ones((N_ROWS, WIDTH), np.float32)
    block = argument_block(ADD, a=int(x.ctypes.data), b=int(one.ctypes.data), width=WIDTH, out=int(x.ctypes.data),
                           n_rows=STEP.n_tokens)
    doubling, n = Doubling(kernels, 0), 2 * MAX_ENTRIES + 3
    doubling.tape = np.array([[kernels["elementwise.add"], block.ctypes.data, 1, 0]] * n, np.int64)
    with Team(2, kernels) as team:
        doubling.run(team)
    assert (x == n).all()


def test_empty_tape_returns(kernels: dict[str, int]) -> None:
    """A tape without entries is no work and no error."""
    with Team(2, kernels) as team:
        Doubling(kernels, 0).run(team)


def test_two_teams_work_in_one_process(kernels: dict[str, int]) -> None:
    """Teams share nothing: two of them, driven from two Python threads, each get their own result."""
    def drive() -> None:
        with Team(2, kernels) as team:
            for _ in range(50):
                doubling = Doubling(kernels, 10)
                doubling.run(team)
                results.append(bool((doubling.x == 1024.0).all()))

    results: list[bool] = []
    threads = [threading.Thread(target=drive) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 100


def test_idle_team_uses_no_processor_and_wakes(kernels: dict[str, int]) -> None:
    """After its spins a waiting thread sleeps, and still answers the next tape."""
    with Team(2, kernels) as team:
        Doubling(kernels, 1).run(team)
        before = time.process_time()
        threading.Event().wait(0.6)
        assert time.process_time() - before < 0.3
        doubling = Doubling(kernels, 3)
        doubling.run(team)
        assert (doubling.x == 8.0).all()


def test_trace_gives_cycles_of_every_entry(kernels: dict[str, int]) -> None:
    """Each thread's start lies before its end, and an entry begins when the one before has ended; a thread that had no
    part in an entry leaves no trace."""
    doubling = Doubling(kernels, 4)
    trace = np.zeros((4, 2, 2), np.int64)
    with Team(2, kernels) as team:
        team.run(doubling.tape, doubling.step.ctypes.data, trace)
    starts, ends = trace[:, :, 0], trace[:, :, 1]
    took_part = starts > 0
    assert took_part.any(axis=1).all()
    assert (starts[took_part] < ends[took_part]).all()
    first = np.where(took_part, starts, np.iinfo(np.int64).max).min(axis=1)
    assert (ends.max(axis=1)[:-1] <= first[1:]).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_use_after_fork_is_refused(kernels: dict[str, int]) -> None:
    """A child process has none of the threads, so its copy of the team says so instead of hanging."""
    with Team(2, kernels) as team:
        child = os.fork()
        if child == 0:
            try:
                Doubling(kernels, 1).run(team)
            except KernelError:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_closing_twice_is_harmless(kernels: dict[str, int]) -> None:
    """Closing ends the threads; closing again does nothing."""
    team = Team(3, kernels)
    team.close()
    team.close()


def test_a_closed_team_refuses_to_run(kernels: dict[str, int]) -> None:
    """Without its workers a tape would wait for ever."""
    team = Team(2, kernels)
    team.close()
    with pytest.raises(KernelError, match="closed"):
        Doubling(kernels, 1).run(team)


def test_a_dropped_team_takes_its_threads_along(kernels: dict[str, int]) -> None:
    """As when loading a model fails half way: nobody is left to close the team."""
    before = threading.active_count()
    team = Team(4, kernels)
    assert threading.active_count() == before + 3
    del team
    assert threading.active_count() == before
