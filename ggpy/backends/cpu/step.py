"""The memory of the step descriptor: filled from the sequences of a step before the tape runs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ggpy.backends.base import StepSequence
from ggpy.backends.cpu.memory import aligned
from ggpy.formats.kv import PAGE_TOKENS
from ggpy.graph.ops import EmbedIndex, RopeTable
from ggpy.kernels.cpu.address import address_of
from ggpy.kernels.cpu.arguments import argument_block
from ggpy.kernels.cpu.step import STEP, TILE, TILE_ROWS

Int32 = npt.NDArray[np.int32]
Int64 = npt.NDArray[np.int64]
COUNTS = 4              # fields of the step that come first: n_tokens, n_outputs, n_slots, n_tiles
ANGLES_AT_ONCE = 64     # positions whose cos and sin are computed together: a millisecond at most


class StepMemory:
    """Row arrays of a step with room for `max_tokens` rows, and the int64 descriptor that points to them.

    `n_used` is how many experts a token uses; page tables have `table_shape` (n_groups, table_pages).
    """

    def __init__(self, max_tokens: int, max_outputs: int, n_used: int, *, table_shape: tuple[int, int],
                 scratch_address: int, scratch_stride: int) -> None:
        self._n_used, self._table_shape = n_used, table_shape
        self.tokens: Int32 = np.zeros(max_tokens, np.int32)
        self.positions: Int32 = np.zeros(max_tokens, np.int32)
        self._numbers: Int32 = np.arange(max(max_tokens, table_shape[1] * PAGE_TOKENS), dtype=np.int32)
        self.output_rows: Int32 = np.zeros(max_outputs, np.int32)
        self.tiles: Int64 = np.zeros((max_tokens, len(TILE._fields)), np.int64)
        self._nothing: Int32 = np.zeros(max_tokens, np.int32)
        self._n_tokens = 0
        self.n_positions = 0        # all positions of the step are below it
        self.descriptor = argument_block(
            STEP, n_tokens=0, n_outputs=0, n_slots=0, n_tiles=0, tokens=address_of(self.tokens),
            positions=address_of(self.positions), output_rows=address_of(self.output_rows),
            tiles=address_of(self.tiles), scratch=scratch_address, scratch_stride=scratch_stride)

    @property
    def address(self) -> int:
        return address_of(self.descriptor)

    def fill(self, sequences: Sequence[StepSequence]) -> tuple[int, int]:
        """Lays out the rows of `sequences`, one sequence after the other; returns (n_tokens, n_outputs)."""
        if sequences and all(len(s.tokens) == s.n_outputs == 1 for s in sequences):
            return self._fill_single(sequences)
        n_tokens = n_outputs = self.n_positions = 0
        tiles: list[tuple[int, int, int, int, int]] = []
        for sequence in sequences:
            n, first = len(sequence.tokens), sequence.first_position
            end, table = n_tokens + n, self._table_address(sequence)
            self.n_positions = max(self.n_positions, first + n)
            self.tokens[n_tokens:end] = sequence.tokens
            self.positions[n_tokens:end] = self._numbers[first: first + n]
            first_output = n_tokens if sequence.outputs_first else end - sequence.n_outputs
            self.output_rows[n_outputs: n_outputs + sequence.n_outputs] = (
                self._numbers[first_output: first_output + sequence.n_outputs])
            tiles += [(n_tokens + i, min(TILE_ROWS, n - i), first + i, first + n, table)
                      for i in range(0, n, TILE_ROWS)]
            n_tokens = end
            n_outputs += sequence.n_outputs
        self.tiles[: len(tiles)] = tiles
        return self._count(n_tokens, n_outputs, len(tiles))

    def _fill_single(self, sequences: Sequence[StepSequence]) -> tuple[int, int]:
        """As `fill`, for sequences of one token each, as most steps have: an array is written in one go."""
        n = len(sequences)
        positions = [sequence.first_position for sequence in sequences]
        self.n_positions = max(positions) + 1
        self.tokens[:n] = [sequence.tokens[0] for sequence in sequences]
        self.positions[:n] = positions
        self.output_rows[:n] = self._numbers[:n]
        self.tiles[:n] = [(i, 1, position, position + 1, self._table_address(sequence))
                          for i, (position, sequence) in enumerate(zip(positions, sequences, strict=True))]
        return self._count(n, n, n)

    def _count(self, n_tokens: int, n_outputs: int, n_tiles: int) -> tuple[int, int]:
        self._n_tokens = n_tokens
        self.descriptor[:COUNTS] = n_tokens, n_outputs, n_tokens * self._n_used, n_tiles
        return n_tokens, n_outputs

    def embed_rows(self, index: EmbedIndex) -> Int32:
        """Which row of an embedding each row of the step takes."""
        by = {"token": self.tokens, "position": self.positions, "none": self._nothing}
        return by[index][: self._n_tokens]

    def _table_address(self, sequence: StepSequence) -> int:
        table = sequence.page_table
        assert table.shape == self._table_shape, f"a page table of {table.shape}, expected {self._table_shape}"
        assert table.dtype == np.int32
        return address_of(table)        # which fails unless it is contiguous


class RopeMemory:
    """cos and sin of a step's positions for one table: float32 (max_tokens, n_rot / 2) each.

    Those of all positions below `n_positions` are kept from when they are first needed.
    """

    def __init__(self, table: RopeTable, max_tokens: int, n_positions: int) -> None:
        self.table = table
        half = len(table.inv_freq)
        self.cos, self.sin = (np.zeros((max_tokens, half), np.float32) for _ in range(2))
        # zeros take no memory before they are written to
        self._all_cos, self._all_sin = (np.zeros((n_positions, half), np.float32) for _ in range(2))
        self._n_known = 0

    def fill(self, positions: Int32, n_positions: int) -> None:
        """Puts those of `positions` (n,), which are below `n_positions`, into the first n rows."""
        n = len(positions)
        if n_positions > self._n_known:
            self._extend(n_positions)
        # these positions are in range: "clip" spares numpy a copy
        self._all_cos.take(positions, axis=0, out=self.cos[:n], mode="clip")
        self._all_sin.take(positions, axis=0, out=self.sin[:n], mode="clip")

    def _extend(self, end: int) -> None:
        """Computes those of all positions below `end`, and of some more."""
        start, stop = self._n_known, min(len(self._all_cos), aligned(end, ANGLES_AT_ONCE))
        table, positions = self.table, np.arange(start, stop)[:, None]
        angles = positions * table.inv_freq
        magnitude: float | npt.NDArray[np.float64] = table.magnitude
        if table.temperature:
            periods = positions // table.temperature_period
            magnitude = magnitude * (1.0 + table.temperature * np.log1p(periods))
        self._all_cos[start:stop] = np.cos(angles) * magnitude
        self._all_sin[start:stop] = np.sin(angles) * magnitude
        self._n_known = stop
