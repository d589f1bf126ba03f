"""What tests of kernels share: running one kernel by its name."""

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import argument_block
from ggpy.kernels.cpu.step import STEP
from ggpy.kernels.cpu.team import Team

SCRATCH_BYTES = 1 << 17         # for each thread

RunKernel = Callable[..., None]


@pytest.fixture(scope="session")
def run_kernel() -> Iterator[RunKernel]:
    """`run_kernel(name, block, n_threads=1, **step_fields)` runs the kernel on a step with those fields, others 0.

    It is shared out in `n_items`, 0: one for each thread.
    """
    teams: dict[int, Team] = {}

    def run(name: str, block: npt.NDArray[np.int64], n_threads: int = 1, n_items: int = 0, **step_fields: int) -> None:
        address = object_loader.addresses([name])[name]
        if n_threads not in teams:
            teams[n_threads] = Team(n_threads, object_loader.addresses(["executor.run", "executor.worker"]))
        scratch = np.full(n_threads * SCRATCH_BYTES, 0xAA, np.uint8)
        fields = dict.fromkeys(STEP._fields, 0) | {
            "scratch": scratch.ctypes.data, "scratch_stride": SCRATCH_BYTES} | step_fields
        step = argument_block(STEP, **fields)
        tape = np.array([[address, block.ctypes.data, 1, n_items]], np.int64)
        teams[n_threads].run(tape, step.ctypes.data)

    yield run
    for team in teams.values():
        team.close()
