"""What this machine grants the process: cores and memory, within its container's limits; and giving memory back."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path("/")        # where /proc and /sys lie
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8        # glibc's malloc.h
OWN_PAGES_BYTES = 1 << 20       # of blocks that lie outside the heap, and go back to the system when they are freed
SPARE_BYTES = 2 * OWN_PAGES_BYTES       # that the heap may keep at its end: asyncio takes 256 KB to read from a socket


def usable_cores() -> int:
    """Physical cores within the process's affinity and its cgroup's CPU quota; at least 1.

    Where the machine does not say which logical CPUs share a core (Windows), each counts as one.
    """
    quota = cpu_quota()
    cores = _physical_cores()
    return max(1, cores if quota is None else int(min(cores, quota)))


def cpu_quota() -> float | None:
    """CPUs that the process's cgroup may keep busy; None: no limit."""
    quotas = [quota for folder in _cgroup_folders("cpu") if (quota := _cpu_quota(folder)) is not None]
    return min(quotas, default=None)


def total_memory_bytes() -> int | None:
    """Memory of the machine, or the cgroup's limit where that is less; None where the system does not say."""
    sizes = [int(limit) for folder in _cgroup_folders("memory") if (limit := _cgroup_memory_limit(folder)) is not None]
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(sizes, default=None)


def available_memory_bytes() -> int | None:
    """Memory that can be taken without swapping, within the cgroup's limit; None where the system does not say."""
    free = _meminfo_available()
    for folder in _cgroup_folders("memory"):
        left = _cgroup_memory_left(folder)
        if left is not None:
            free = left if free is None else min(free, left)
    return free


def keep_heap_small() -> None:
    """Have all threads of the process share one heap, and large blocks lie outside it.

    glibc gives threads heaps of their own, up to eight for each core, which keep what their threads freed for them
    alone; and the first large block that is freed has later ones lie in the heap, where small ones that stay hold the
    gaps. A process of many threads then grows for long though it uses no more. Call it before there are
    threads; where C's library is another it does nothing.
    """
    if mallopt := _glibc("mallopt"):
        mallopt(M_ARENA_MAX, 1)
        mallopt(M_MMAP_THRESHOLD, OWN_PAGES_BYTES)
        mallopt(M_TRIM_THRESHOLD, SPARE_BYTES)


def give_memory_back() -> None:
    """Give the system the memory that objects of the past have left.

    It takes as long as looking through all that `gc.freeze` has not set aside. Looking through the young alone would
    make all others old: who calls this often then puts off for ever what happens once enough have become so.
    """
    gc.collect()        # it empties Python's free lists, too, of which a single object holds an arena of 1 MB
    if malloc_trim := _glibc("malloc_trim"):
        malloc_trim(ctypes.c_size_t(0))


def sysctl(name: str) -> int | None:
    """A number above 0 that macOS knows under `name`; None where it knows none, or another."""
    value, size = ctypes.c_int32(0), ctypes.c_size_t(4)
    code = ctypes.CDLL(None).sysctlbyname(name.encode(), ctypes.byref(value), ctypes.byref(size), None, 0)
    return value.value if code == 0 and value.value > 0 else None


def _glibc(name: str) -> Callable[..., int] | None:
    """A function that other C libraries lack; None where the process has one of those."""
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None


def _physical_cores() -> int:
    if sys.platform == "darwin":
        # the slower cores of Apple's processors would hold up the faster ones at every barrier
        return sysctl("hw.perflevel0.physicalcpu") or sysctl("hw.physicalcpu") or os.cpu_count() or 1
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    folder = ROOT / "sys/devices/system/cpu"
    # CPUs of one core name the same siblings
    return len({_read(folder / f"cpu{i}/topology/thread_siblings_list") or f"cpu{i}" for i in cpus})


def _cgroup_folders(controller: str) -> Iterator[Path]:
    """The folders of this process's cgroup and all above it: limits hold for everything below."""
    for line in (_read(ROOT / "proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        mount = ROOT / "sys/fs/cgroup" / (controller if controllers else "")       # version 1 names its controllers
        group = mount / path.lstrip("/")
        yield group
        yield from (parent for parent in group.parents if parent.is_relative_to(mount))


def _cpu_quota(folder: Path) -> float | None:
    """CPUs that the group may keep busy; None: no limit."""
    limit = _read(folder / "cpu.max") or f"{_read(folder / 'cpu.cfs_quota_us')} {_read(folder / 'cpu.cfs_period_us')}"
    quota, _, period = limit.partition(" ")         # microseconds in each period, also of microseconds
    return None if quota in ("None", "max", "-1") else int(quota) / int(period)


def _cgroup_memory_left(folder: Path) -> int | None:
    """Bytes up to the group's limit, file pages counted as free; None: no limit."""
    limit = _cgroup_memory_limit(folder)
    used = _read(folder / "memory.current") or _read(folder / "memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    stat = dict(line.split() for line in (_read(folder / "memory.stat") or "").splitlines())
    return max(0, int(limit) - int(used) + int(stat.get("file") or stat.get("total_cache") or 0))


def _cgroup_memory_limit(folder: Path) -> str | None:
    """Bytes that the group may take, as written; None: no limit."""
    limit = _read(folder / "memory.max") or _read(folder / "memory.limit_in_bytes")
    return None if limit == "max" else limit


def _meminfo_available() -> int | None:
    for line in (_read(ROOT / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _read(path: Path) -> str | None:
    """The file's text without blanks around it; None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
