"""Work memory for samplers, and running them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.engine.sampling.sampler import Mask, Sampler
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.address import address_of
from ggpy.kernels.cpu.arguments import argument_block
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, RESULT, ROW, ROWS, WORK_BYTES, work_bytes
from ggpy.kernels.cpu.team import Team

LINE = 64           # bytes of a cache line
ALONE = 200_000     # with fewer logits in a step, one thread has chosen before others have joined in
RUN = "sample_rows.run"
LOGITS, N_TOKENS = ROW.logits // 8, ROW.n_tokens // 8       # what changes from token to token, as places in a row
ROW_WORDS, RESULT_WORDS = len(ROW._fields), len(RESULT._fields)
NO_TOKEN = -1       # nothing could be chosen

Choice = tuple[int, Sampler, Sequence[int], Mask | None]    # a row of the logits, who chooses, tokens before it, a mask


class SamplingMemory:
    """Candidates for each thread of `team`, or for the calling thread alone, which run samplers on rows of logits."""

    def __init__(self, team: Team | None = None) -> None:
        self._team = team
        self._address = object_loader.addresses([RUN])[RUN]
        self._call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(self._address)
        self._rows = np.empty((0, ROW_WORDS), np.int64)
        self._words = self._rows.ravel().data       # the same; a number is put there more quickly
        self._results = np.empty(0, np.int64)
        # whose row stands in each place and need not be written again: behind a pass, whatever is touched is waited for
        self._samplers: list[Sampler | None] = []
        self._arguments = argument_block(ROWS, rows=0, n_rows=0, next=0, candidates=0, stride=0)
        self._tape = np.array([[self._address, self._arguments.ctypes.data, 0, 0]], np.int64)
        self._n_vocab = 0               # of the step before
        self._most_vocab = 0            # that there is room for
        self._candidates = self._work = np.empty(0, np.int64)

    def choose(self, logits: Float32, choices: Sequence[Choice], n_vocab: int) -> list[int]:
        """The tokens below `n_vocab` that samplers choose by rows of `logits` (n, n_vocab or more), C-contiguous.

        NO_TOKEN stands for none; Sampler.failure says why. A row is done by one thread from start to end, so nothing
        depends on how many there are.
        """
        n = len(choices)
        if not n:
            return []
        self._make_room(n, n_vocab)
        words, samplers = self._words, self._samplers
        address, stride, at = address_of(logits), logits.strides[0], 0
        for i, (row, sampler, tokens, mask) in enumerate(choices):
            if samplers[i] is not sampler:
                self._write(i, sampler, sampler.row(n_vocab, tokens, mask))
            words[at + LOGITS] = address + stride * row
            words[at + N_TOKENS] = len(tokens)
            at += ROW_WORDS
        self._arguments[ROWS.n_rows // 8], self._arguments[ROWS.next // 8] = n, 0
        if self._team is None or n == 1 or n * n_vocab < ALONE:
            self._call(address_of(self._arguments), 0, 0, 1)
        else:
            self._team.run(self._tape, 0)
        results = self._results[: n * RESULT_WORDS].tolist()
        assert results[RESULT.n_tokens // 8 :: RESULT_WORDS] == [len(tokens) for _, _, tokens, _ in choices]
        return [NO_TOKEN if broken else token for token, broken in zip(
            results[RESULT.token // 8 :: RESULT_WORDS], results[RESULT.is_broken // 8 :: RESULT_WORDS], strict=True)]

    def forget(self, sampler: Sampler) -> None:
        """Let go of a sampler that will not choose any more; what it carries may be large."""
        self._samplers = [None if other is sampler else other for other in self._samplers]

    def clear(self) -> None:
        """Let go of all samplers; any may still choose."""
        self._samplers = [None] * len(self._samplers)

    def _write(self, i: int, sampler: Sampler, row: NDArray[np.int64]) -> None:
        """Put the row of a sampler into place `i`, where it stays as long as that sampler has it."""
        self._samplers[i] = None
        self._rows[i] = row
        self._rows[i, ROW.result // 8] = address_of(self._results) + 8 * RESULT_WORDS * i
        self._samplers[i] = sampler if sampler.has_steady_row else None

    def _make_room(self, n_rows: int, n_vocab: int) -> None:
        if n_rows > len(self._rows):
            self._rows = np.empty((n_rows, ROW_WORDS), np.int64)
            self._words = self._rows.ravel().data
            self._results = np.empty(n_rows * RESULT_WORDS, np.int64)
            self._samplers = [None] * n_rows
            self._arguments[ROWS.rows // 8] = address_of(self._rows)
        if n_vocab != self._n_vocab:
            self.clear()
            self._n_vocab = n_vocab
        if n_vocab <= self._most_vocab:
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
        self._most_vocab = n_vocab
        self._arguments[ROWS.candidates // 8] = address_of(self._candidates)
        self._arguments[ROWS.stride // 8] = self._candidates.strides[0]
