"""What the machine grants, read from files as Linux writes them."""

import gc
import os
import platform
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from ggpy import machine


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 8 logical CPUs, two on each core, of which this process may use the first six."""
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(6)), raising=False)
    for i in range(8):
        core = i // 2
        write(tmp_path, f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list", f"{2 * core}-{2 * core + 1}")
    write(tmp_path, "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable: 5000 kB")
    return tmp_path


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


def test_threads_of_a_core_count_once(root: Path) -> None:
    """Six logical CPUs are three cores."""
    assert machine.usable_cores() == 3


def test_cpus_that_name_no_siblings_count_each(root: Path) -> None:
    """As where /sys is hidden."""
    for file in root.rglob("thread_siblings_list"):
        file.unlink()
    assert machine.usable_cores() == 6


@pytest.mark.parametrize(("files", "cores"), [
    ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "max 100000"}, 3),
    ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/cpu.max": "250000 100000"}, 2),
    ({"proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/cpu.max": "100000 100000"}, 1),       # the group above
    ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "20000 100000"}, 1),             # never less than one
    ({"proc/self/cgroup": "4:cpu,cpuacct:/x\n0::/", "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "200000",
      "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000"}, 2),
    ({"proc/self/cgroup": "4:cpu:/", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000"}, 3),
])
def test_a_quota_limits_the_cores(root: Path, files: dict[str, str], cores: int) -> None:
    """Of either version of cgroups."""
    for name, text in files.items():
        write(root, name, text)
    assert machine.usable_cores() == cores


@pytest.mark.parametrize(("files", "expected"), [
    ({}, 5_120_000),
    ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "3000000", "sys/fs/cgroup/a/memory.current": "1000000",
      "sys/fs/cgroup/a/memory.stat": "anon 600000\nfile 400000"}, 2_400_000),     # the page cache can be dropped
    ({"proc/self/cgroup": "0::/a", "sys/fs/cgroup/a/memory.max": "max", "sys/fs/cgroup/a/memory.current": "1"},
     5_120_000),
    ({"proc/self/cgroup": "9:memory:/", "sys/fs/cgroup/memory/memory.limit_in_bytes": "2000",
      "sys/fs/cgroup/memory/memory.usage_in_bytes": "500"}, 1500),
])
def test_available_memory_is_that_of_the_tightest_limit(root: Path, files: dict[str, str], expected: int) -> None:
    """Of the machine and the cgroup."""
    for name, text in files.items():
        write(root, name, text)
    assert machine.available_memory_bytes() == expected


def test_memory_is_unknown_where_the_system_does_not_say(root: Path) -> None:
    """As outside Linux."""
    (root / "proc/meminfo").unlink()
    assert machine.available_memory_bytes() is None


def test_total_memory_is_the_groups_limit_where_that_is_less(root: Path) -> None:
    """64 MB in a container; without a limit, what the machine has."""
    whole = machine.total_memory_bytes()
    write(root, "proc/self/cgroup", "0::/a")
    write(root, "sys/fs/cgroup/a/memory.max", "64000000")
    assert machine.total_memory_bytes() == 64_000_000
    write(root, "sys/fs/cgroup/a/memory.max", "max")
    assert machine.total_memory_bytes() == whole


def test_the_quota_is_the_least_of_the_groups(root: Path) -> None:
    """One and a half CPUs for the group, four for the one above."""
    assert machine.cpu_quota() is None
    write(root, "proc/self/cgroup", "0::/a/b")
    write(root, "sys/fs/cgroup/a/cpu.max", "400000 100000")
    write(root, "sys/fs/cgroup/a/b/cpu.max", "150000 100000")
    assert machine.cpu_quota() == 1.5


HEAPS = """
import ctypes, os, threading
from ggpy import machine
{call}
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fdopen.restype = ctypes.c_void_p
together = threading.Barrier(4)

def allocate():
    together.wait()
    libc.malloc(50_000)
    together.wait()

threads = [threading.Thread(target=allocate) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc.free(ctypes.c_void_p(libc.malloc(8_000_000)))
libc.malloc(4_000_000)
reading, writing = os.pipe()
file = ctypes.c_void_p(libc.fdopen(writing, b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(os.fdopen(reading).read())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has heaps for threads")
@pytest.mark.parametrize(("call", "is_small"), [("", False), ("machine.keep_heap_small()", True)])
def test_threads_share_a_heap_without_large_blocks_where_that_is_asked_for(call: str, is_small: bool) -> None:
    """Four threads that allocate; and 4 MB behind a block of 8 that was freed."""
    told = subprocess.run([sys.executable, "-c", HEAPS.format(call=call)], capture_output=True, text=True,
                          check=True).stdout
    outside = re.search(r'type="mmap" count="\d+" size="(\d+)"', told)
    assert outside is not None
    assert (told.count("<heap ") == 1, int(outside[1]) > 4_000_000) == (is_small, is_small)


HELD = """
import random, re
from pathlib import Path
from ggpy import machine

def held_kb():
    return int(re.search(r"RssAnon:\\s+([0-9]+)", Path("/proc/self/status").read_text())[1])

start_kb = held_kb()
objects = {objects}
random.Random(1).shuffle(objects)
last = bytes(3000)      # stays, behind all of them
while objects:
    objects.pop()
used_kb = held_kb() - start_kb
machine.give_memory_back()
print(used_kb, held_kb() - start_kb)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries take no such request")
@pytest.mark.parametrize("objects", ["[(i,) for i in range(400_000)]", "[bytes(3000) for _ in range(10_000)]"])
def test_memory_of_objects_of_the_past_goes_back(objects: str) -> None:
    """Of tuples, of which Python keeps some everywhere, and of blocks of the heap: 30 MB that are still held."""
    told = subprocess.run([sys.executable, "-c", HELD.format(objects=objects)], capture_output=True, text=True,
                          check=True).stdout
    used_kb, left_kb = map(int, told.split())
    assert used_kb > 20_000
    assert left_kb < 5_000


class Knot:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_giving_memory_back_frees_old_objects_that_hold_themselves() -> None:
    """Not only young ones: what has survived collections goes when nobody else has it."""
    knots = [Knot() for _ in range(10)]
    left = [weakref.ref(knot) for knot in knots]
    gc.collect()        # they are old now
    knots.clear()
    machine.give_memory_back()
    assert [knot() for knot in left] == [None] * 10


def test_giving_memory_back_leaves_what_is_set_aside_so() -> None:
    """Looking through it would take long."""
    gc.freeze()
    try:
        n_objects = gc.get_freeze_count()
        machine.give_memory_back()
        assert gc.get_freeze_count() > 0.9 * n_objects      # others may have gone
    finally:
        gc.unfreeze()
