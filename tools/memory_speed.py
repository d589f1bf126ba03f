"""How fast this machine reads memory: what generating is measured against."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ggpy import machine

PART_BYTES = 128 << 20      # of each thread: far more than its share of a cache


def part_bytes(n_threads: int) -> int:
    """What each thread reads: no more than memory allows."""
    return min(PART_BYTES, (machine.available_memory_bytes() or 1 << 30) // (4 * n_threads))


class MemoryReader:
    """Reads memory with NumPy's max of bytes, in all threads at once."""

    def __init__(self, n_threads: int) -> None:
        self._parts = [np.ones(part_bytes(n_threads), np.uint8) for _ in range(n_threads)]
        self._pool = ThreadPoolExecutor(n_threads)

    def read(self, seconds: float) -> list[float]:
        """Bytes a second of each round of about `seconds`; at least one."""
        rounds: list[float] = []
        end = time.perf_counter() + seconds
        while not rounds or time.perf_counter() < end:
            start = time.perf_counter()
            list(self._pool.map(np.max, self._parts))
            rounds.append(sum(part.nbytes for part in self._parts) / (time.perf_counter() - start))
        return rounds
