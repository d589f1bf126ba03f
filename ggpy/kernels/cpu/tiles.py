"""AMX: eight registers of 16 rows of up to 64 bytes, *tiles*, and the product of two of them.

`HAS_TILES` says whether the level has them. Number k of a tile is written into the instruction, so that functions are
made for a number: `load_tile(4)(address, stride)` reads the rows of tile 4, `stride` bytes apart. Of the tiles
    0..3    hold int32 sums, 16 rows of 16,
    4, 5    hold activations, 16 rows of 32 int8,
    6, 7    hold weights, 8 lines of 64 int8 (see blocks.py: byte 4 r + i of line k is weight 4 k + i of row r).
`add_product(c, a, b)` adds to sum (t, r) of tile c the sum over k of activation (t, k) times weight (r, k): exact.

A thread calls `configure` before it uses tiles, and `release` after it, so that nobody saves them for it later.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.vectors import INT, call, function, i8x64, pointer

HAS_TILES = current_level().has("amx-int8")
TILE_HEIGHT = 16            # rows
LINE = 64                   # bytes of a row
INSTRUCTIONS = "llvm.x86."      # what the names of the instructions begin with
SHAPES = (*[(TILE_HEIGHT, LINE)] * 4, *[(TILE_HEIGHT, 32)] * 2, *[(8, LINE)] * 2)      # rows and bytes of each


def _emit(b: ir.IRBuilder, name: str, args: list[ir.Value]) -> None:
    call(b, INSTRUCTIONS + name, ir.VoidType(), args)


def _configuration() -> list[int]:
    """What `configure` wants in memory: the number of the only palette, bytes of a row (16 bits each), rows."""
    config = bytearray(64)
    config[0] = 1
    for k, (n_rows, n_bytes) in enumerate(SHAPES):
        config[16 + 2 * k], config[48 + k] = n_bytes, n_rows
    return list(config)


def _configure(b: ir.IRBuilder, s: Any, address: ir.Value) -> None:
    to = pointer(b, address, i8x64.llvm)
    b.store(ir.Constant(i8x64.llvm, _configuration()), to, align=1)
    _emit(b, "ldtilecfg", [pointer(b, address, INT[8])])


def _mover(name: str, k: int) -> Any:
    def emit(b: ir.IRBuilder, s: Any, address: ir.Value, stride: ir.Value) -> None:
        _emit(b, name, [INT[8](k), pointer(b, address, INT[8]), stride])

    return function(2, lambda a, stride: (types.void, types.int64, types.int64), emit)


configure = function(1, lambda a: (types.void, types.int64), _configure)         # writes 64 bytes at the address
release = function(0, lambda: (types.void,), lambda b, s: _emit(b, "tilerelease", []))


def load_tile(k: int) -> Any:
    return _mover("tileloadd64", k)


def store_tile(k: int) -> Any:
    return _mover("tilestored64", k)


def clear_tile(k: int) -> Any:
    return function(0, lambda: (types.void,), lambda b, s: _emit(b, "tilezero", [INT[8](k)]))


def add_product(c: int, a: int, w: int) -> Any:
    return function(0, lambda: (types.void,), lambda b, s: _emit(b, "tdpbssd", [INT[8](k) for k in (c, a, w)]))
