"""The compiled side of the team: walking a tape, the barrier, and waiting for work."""

from ggpy.kernels.cpu.atomic import (
    atomic_add,
    atomic_load,
    atomic_store,
    call_kernel,
    clock,
    pause,
    sleep_while,
    wake_all,
    yield_cpu,
)
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import load_i64, store_i64
from ggpy.kernels.cpu.team import (
    ARRIVED,
    GENERATION,
    JOB,
    LENGTH,
    SLEEPERS,
    STEP_ADDRESS,
    STOP,
    TAPE,
    TAPE_WORDS,
    TRACE,
)

BARRIER_SPINS = 200         # then the core is given away: 200 measured best with more threads than cores
WAIT_SPINS = 4000           # some 0.1 ms of pauses before the first yield, which covers a step's Python
WAIT_YIELDS = 2000          # then some ms of yields before sleeping


@device
def barrier(team, nth):
    """Returns when all `nth` threads have arrived."""
    generation = atomic_load(team + GENERATION)
    if atomic_add(team + ARRIVED, 1) == nth - 1:
        atomic_store(team + ARRIVED, 0)
        atomic_store(team + GENERATION, generation + 1)
        return
    spins = 0
    while atomic_load(team + GENERATION) == generation:
        pause()
        spins += 1
        if spins > BARRIER_SPINS:
            yield_cpu()


@device
def walk(team, ith, nth):
    """Runs every entry of the team's tape as thread `ith`."""
    tape = load_i64(team + TAPE)
    step = load_i64(team + STEP_ADDRESS)
    trace = load_i64(team + TRACE)
    for i in range(load_i64(team + LENGTH)):
        entry = tape + i * (8 * TAPE_WORDS)
        mark = trace + (i * nth + ith) * 16
        if trace != 0:
            store_i64(mark, clock())
        call_kernel(load_i64(entry), load_i64(entry + 8), step, ith, nth)
        if trace != 0:
            store_i64(mark + 8, clock())
        if load_i64(entry + 16) != 0 and nth > 1:
            barrier(team, nth)
    if nth > 1:
        barrier(team, nth)


@kernel
def run(team, step, ith, nth):
    """Starts the workers on the tape, walks it as thread 0, returns when everyone is done."""
    if nth > 1:
        atomic_add(team + JOB, 1)
        if atomic_load(team + SLEEPERS) != 0:
            wake_all(team + JOB)
    walk(team, 0, nth)


@kernel
def worker(team, step, ith, nth):
    """Waits for tapes and walks them until the team stops."""
    seen = 0
    while True:
        idle = 0
        while atomic_load(team + JOB) == seen:
            idle += 1
            if idle < WAIT_SPINS:
                pause()
            elif idle < WAIT_SPINS + WAIT_YIELDS:
                yield_cpu()
            else:
                atomic_add(team + SLEEPERS, 1)
                sleep_while(team + JOB, seen)
                atomic_add(team + SLEEPERS, -1)
        seen += 1
        stop = load_i64(team + STOP)
        walk(team, ith, nth)
        if stop != 0:
            return
