"""AMX's tiles in NumPy, for processors that have none: what each instruction does, and what it refuses.

Kernels call it instead, by the names of the instructions.
"""

import ctypes
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

PREFIX = "emulated_"            # what stands before the name of an instruction
N_TILES, MAX_ROWS, MAX_BYTES = 8, 16, 64
NUMBER, ADDRESS = ctypes.c_uint8, ctypes.c_int64
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ldtilecfg": (ADDRESS,), "tilerelease": (), "tilezero": (NUMBER,), "tileloadd64": (NUMBER, ADDRESS, ADDRESS),
    "tilestored64": (NUMBER, ADDRESS, ADDRESS), "tdpbssd": (NUMBER, NUMBER, NUMBER)}


class TileUnit:
    """Eight tiles. `faults` tells what a processor would not have done, or done with what nobody has put there."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.n_products = 0
        self._shapes: list[tuple[int, int]] | None = None       # rows and bytes of each; None: not configured
        self._tiles: dict[int, npt.NDArray[np.uint8]] = {}      # those with something in them
        self._entries = {name: ctypes.CFUNCTYPE(None, *types)(partial(self.call, name))
                         for name, types in SIGNATURES.items()}

    def symbols(self) -> dict[str, int]:
        """Addresses of C functions for the instructions; they live as long as this object."""
        return {PREFIX + name: ctypes.cast(entry, ctypes.c_void_p).value or 0 for name, entry in self._entries.items()}

    @property
    def is_released(self) -> bool:
        return self._shapes is None

    def call(self, name: str, *args: int) -> None:
        """Runs an instruction; what it refuses becomes a fault, for no exception passes through a kernel."""
        try:
            getattr(self, f"_{name}")(*args)
        except ValueError as error:
            self.faults.append(f"{name}{args}: {error}")

    def _ldtilecfg(self, address: int) -> None:
        config = ctypes.string_at(address, 64)
        if config[0] != 1 or any(config[1:16]):
            raise ValueError(f"palette {config[0]}, or something where zeros belong")
        n_bytes = np.frombuffer(config, "<u2", 16, offset=16).tolist()
        shapes = list(zip(config[48:], n_bytes, strict=True))
        for n_rows, width in shapes:
            if n_rows > MAX_ROWS or width > MAX_BYTES or (n_rows == 0) != (width == 0):
                raise ValueError(f"a tile of {n_rows} rows of {width} bytes")
        if set(shapes[N_TILES:]) != {(0, 0)}:
            raise ValueError("tiles beyond the eighth")
        self._shapes, self._tiles = shapes[:N_TILES], {}

    def _tilerelease(self) -> None:
        self._shapes, self._tiles = None, {}

    def _tilezero(self, k: int) -> None:
        self._tiles[k] = np.zeros(self._shape(k), np.uint8)

    def _tileloadd64(self, k: int, address: int, stride: int) -> None:
        n_rows, n_bytes = self._shape(k)
        rows = [ctypes.string_at(address + i * stride, n_bytes) for i in range(n_rows)]
        self._tiles[k] = np.frombuffer(b"".join(rows), np.uint8).reshape(n_rows, n_bytes)

    def _tilestored64(self, k: int, address: int, stride: int) -> None:
        for i, row in enumerate(self._filled(k)):
            ctypes.memmove(address + i * stride, row.tobytes(), len(row))

    def _tdpbssd(self, c: int, a: int, b: int) -> None:
        if len({c, a, b}) < 3:
            raise ValueError("a tile is named twice")
        (c_rows, c_bytes), (a_rows, a_bytes), (b_rows, b_bytes) = map(self._shape, (c, a, b))
        if c_rows != a_rows or c_bytes != b_bytes or a_bytes != 4 * b_rows or (a_bytes | b_bytes) % 4:
            raise ValueError(f"({a_rows}, {a_bytes}) times ({b_rows}, {b_bytes}) into ({c_rows}, {c_bytes}) bytes")
        left = self._filled(a).view(np.int8).astype(np.int32)
        right = self._filled(b).view(np.int8).reshape(b_rows, b_bytes // 4, 4).astype(np.int32)
        sums = self._filled(c).view(np.int32) + left @ right.transpose(0, 2, 1).reshape(a_bytes, b_bytes // 4)
        self._tiles[c] = sums.view(np.uint8)
        self.n_products += 1

    def _shape(self, k: int) -> tuple[int, int]:
        if self._shapes is None:
            raise ValueError("tiles are not configured")
        if k >= N_TILES or self._shapes[k] == (0, 0):
            raise ValueError(f"tile {k} is not configured")
        return self._shapes[k]

    def _filled(self, k: int) -> npt.NDArray[np.uint8]:
        self._shape(k)
        if k not in self._tiles:
            raise ValueError(f"nothing was put into tile {k}")
        return self._tiles[k]
