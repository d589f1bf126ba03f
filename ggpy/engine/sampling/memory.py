"""Work memory for samplers, and running them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from ggpy.arrays import Float32
from ggpy.engine.sampling.sampler import Mask, Sampler
from ggpy.kernels.cpu import library
from ggpy.kernels.cpu.address import address_of
from ggpy.kernels.cpu.arguments import argument_block
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, ROW, ROWS, WORK_BYTES, work_bytes
from ggpy.kernels.cpu.team import Team

LINE = 64           # bytes of a cache line
RUN = "sample_rows.run"
Row = tuple[Sampler, Float32, Sequence[int]] | tuple[Sampler, Float32, Sequence[int], Mask | None]


class SamplingMemory:
    """Candidates for each thread of `team`, or for the calling thread alone, which run samplers on rows of logits."""

    def __init__(self, team: Team | None = None) -> None:
        self._team = team
        self._address = library.addresses([RUN])[RUN]
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(self._address)
        self._rows = np.empty((0, len(ROW._fields)), np.int64)
        self._arguments = argument_block(ROWS, rows=0, n_rows=0, next=0, candidates=0, stride=0)
        self._tape = np.array([[self._address, self._arguments.ctypes.data, 0, 0]], np.int64)
        self._n_vocab = 0
        self._candidates = self._work = np.empty(0, np.int64)

    def choose(self, rows: Sequence[Row]) -> None:
        """Have samplers choose the next token, given each its logits (n_vocab,), all tokens before it and its mask.

        A row is done by one thread from start to end, so nothing depends on how many there are.
        """
        if not rows:
            return
        self._make_room(len(rows), max(len(logits) for _, logits, *_ in rows))
        for i, (sampler, *row) in enumerate(rows):
            self._rows[i] = sampler.row(*row)
        self._arguments[ROWS.n_rows // 8], self._arguments[ROWS.next // 8] = len(rows), 0
        if self._team is None or len(rows) == 1:
            self._call(address_of(self._arguments), 0, 0, 1)
        else:
            self._team.run(self._tape, 0)

    def _make_room(self, n_rows: int, n_vocab: int) -> None:
        if n_rows > len(self._rows):
            self._rows = np.empty((n_rows, len(ROW._fields)), np.int64)
            self._arguments[ROWS.rows // 8] = address_of(self._rows)
        if n_vocab <= self._n_vocab:
            return
        n_threads = self._team.n_threads if self._team else 1
        sizes = {name: work_bytes(name, n_vocab) for name in WORK_BYTES}
        self._work = np.empty((n_threads, sum(sizes.values()) // 8 + LINE), np.int64)
        self._candidates = np.zeros((n_threads, (8 * len(CANDIDATES._fields) + LINE - 1) // LINE * LINE // 8), np.int64)
        for i in range(n_threads):
            address = -(-self._work[i].ctypes.data // LINE) * LINE
            for name, size in sizes.items():
                self._candidates[i, getattr(CANDIDATES, name) // 8] = address
                address += size
        self._n_vocab = n_vocab
        self._arguments[ROWS.candidates // 8] = address_of(self._candidates)
        self._arguments[ROWS.stride // 8] = self._candidates.strides[0]
