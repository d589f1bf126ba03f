"""The compiled side of the team: sharing out the items of a tape, and waiting for work.

Every entry of a tape is cut into items, which threads claim one by one, so a thread that is slow, or has lost its core,
holds no one up but with the item it is at. `progress` has two words for each entry: its claim, the items that nobody
has taken, and its goal, how many items of the whole tape must be done before the next entry may begin (0: none). Claims
and the count of what is done carry the number of the run in their upper halves: a thread that comes late to a run
that others have finished sees another number and leaves.
"""

from ggpy.kernels.cpu.atomic import (
    atomic_add,
    atomic_load,
    atomic_replace,
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
from ggpy.kernels.cpu.step import N_STEP_FIELDS, STEP
from ggpy.kernels.cpu.team import (
    DONE,
    JOB,
    LENGTH,
    PROGRESS,
    PROGRESS_BYTES,
    SLEEPERS,
    STEP_ADDRESS,
    STEP_BYTES,
    STEPS,
    STOP,
    TAPE,
    TAPE_BYTES,
    TRACE,
)

GOAL_SPINS = 200            # then the core is given away: 200 measured best with more threads than cores
WAIT_SPINS = 4000           # some 0.1 ms of pauses before the first yield, which covers a step's Python
WAIT_YIELDS = 2000          # then some ms of yields before sleeping
RUN = 32                    # the number of a run stands above this bit
COUNT = (1 << RUN) - 1
MAX_RUN = (1 << 31) - 1     # then numbers begin again


@device
def n_items_of(entry, nth):
    """How many items an entry of a tape has; where it does not say, as many as there are threads."""
    n = load_i64(entry + 24)
    return n if n != 0 else nth


@device
def prepare(team, job, nth):
    """Sets the claims and goals of run number `job`."""
    entry, progress = load_i64(team + TAPE), load_i64(team + PROGRESS)
    n_entries = load_i64(team + LENGTH)
    goal = 0
    for i in range(n_entries):
        n = n_items_of(entry, nth)
        goal += n
        must_wait = load_i64(entry + 16) != 0 or i + 1 == n_entries
        store_i64(progress + 8, goal if must_wait else 0)
        atomic_store(progress, (job << RUN) + n)
        entry += TAPE_BYTES
        progress += PROGRESS_BYTES
    atomic_store(team + DONE, job << RUN)


@device
def claim(progress, job):
    """How many items of an entry were left, one of which is now the caller's; 0: all are taken, -1: the run is over."""
    while True:
        word = atomic_load(progress)
        if word >> RUN != job:
            return -1
        if word & COUNT == 0:
            return 0
        if atomic_replace(progress, word, word - 1):
            return word & COUNT


@device
def is_reached(team, goal, job):
    """Waits until `goal` items are done: true, or false if the run is over."""
    spins = 0
    while True:
        done = atomic_load(team + DONE)
        if done >> RUN != job:
            return False
        if done & COUNT >= goal:
            return True
        pause()
        spins += 1
        if spins > GOAL_SPINS:
            yield_cpu()


@device
def step_of_thread(team, ith):
    """The step's descriptor as thread `ith` gets it, a copy that points to its own scratch memory; 0 without a step."""
    step, copy = load_i64(team + STEP_ADDRESS), load_i64(team + STEPS) + ith * STEP_BYTES
    if step == 0:
        return step
    for i in range(N_STEP_FIELDS):
        store_i64(copy + 8 * i, load_i64(step + 8 * i))
    store_i64(copy + STEP.scratch, load_i64(step + STEP.scratch) + ith * load_i64(step + STEP.scratch_stride))
    return copy


@device
def walk(team, job, ith, nth):
    """Does items of run number `job` as thread `ith` until it is over."""
    progress = load_i64(team + PROGRESS)
    step = -1
    for i in range(load_i64(team + LENGTH)):
        left = claim(progress, job)
        trace = load_i64(team + TRACE) if left > 0 else 0
        mark = trace + (i * nth + ith) * 16
        if trace != 0:
            store_i64(mark, clock())
        if left > 0 and step < 0:           # only now are the tape and the step sure to be those of this run
            step = step_of_thread(team, ith)
        while left > 0:
            entry = load_i64(team + TAPE) + i * TAPE_BYTES
            n = n_items_of(entry, nth)
            call_kernel(load_i64(entry), load_i64(entry + 8), step, n - left, n)
            if trace != 0:
                store_i64(mark + 8, clock())
            atomic_add(team + DONE, 1)
            left = claim(progress, job)
        if left < 0:
            return
        goal = load_i64(progress + 8)
        if goal != 0 and not is_reached(team, goal, job):
            return
        progress += PROGRESS_BYTES


@kernel
def run(team, step, ith, nth):
    """Starts the workers on the tape, walks it as thread 0, returns when all of it is done."""
    job = (load_i64(team + JOB) + 1) & MAX_RUN
    prepare(team, job, nth)
    atomic_store(team + JOB, job)
    if nth > 1 and atomic_load(team + SLEEPERS) != 0:
        wake_all(team + JOB)
    walk(team, job, 0, nth)


@kernel
def worker(team, step, ith, nth):
    """Waits for tapes and helps with them until the team stops."""
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
        seen = atomic_load(team + JOB)
        if load_i64(team + STOP) != 0:
            return
        walk(team, seen, ith, nth)
