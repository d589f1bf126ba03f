"""Sums held in registers: a grid of float32 vectors, and its rank-one update with values from a KV pool.

`grid(rows, element)` gives the functions of a grid of `rows` x COLUMNS vectors, where `element` is the pool's:

    zero()                                 all sums 0
    load(address, stride)                  row r from address + r * stride bytes
    store(address, stride, acc)
    add_outer(acc, factors, stride, at)    row r += (float at factors + r * stride bytes) * (SPAN pool values at `at`)

The update is one fused multiply-add a lane. Code is unrolled over the grid.
"""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import models, register_model

from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.simd import ELEMENT, INT, broadcast, call, f32x16, function, half_to_float, pointer

# the largest grid that leaves registers for its operands: 32 of 512 bits, or 16 of 256 bits (two to a vector)
MAX_ROWS, COLUMNS = (8, 2) if current_level().has("avx512f") else (6, 1)
LANES = f32x16.lanes
VECTOR_BYTES = 4 * LANES
SPAN = LANES * COLUMNS                  # floats of a row
ITEM_BYTES = {"f16": 2, "f32": 4}


class Grid(types.Type):                                                                 # type: ignore[misc]
    """Numba type of a grid of `rows` x COLUMNS vectors f32x16."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        super().__init__(name=f"grid of {rows} x {COLUMNS} f32x16")

    @property
    def llvm(self) -> ir.Type:
        return ir.ArrayType(f32x16.llvm, self.rows * COLUMNS)


@register_model(Grid)
class _GridModel(models.PrimitiveModel):                                                # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: Grid) -> None:
        super().__init__(dmm, fe_type, fe_type.llvm)


def pool_vector(b: ir.IRBuilder, address: ir.Value, element: str) -> ir.Value:
    """LANES values of a pool as float32."""
    if element == "f16":
        return half_to_float(b, b.load(pointer(b, address, ir.VectorType(INT[16], LANES)), align=1), f32x16.llvm)
    return b.load(pointer(b, address, f32x16.llvm), align=1)


def grid(rows: int, element: str) -> tuple[Any, Any, Any, Any]:
    """(zero, load, store, add_outer) for kernels."""
    kind = Grid(rows)
    places = [(r, c) for r in range(rows) for c in range(COLUMNS)]

    def at(b: ir.IRBuilder, address: ir.Value, stride: ir.Value, r: int, c: int = 0) -> ir.Value:
        return b.add(b.add(address, b.mul(stride, INT[64](r))), INT[64](c * VECTOR_BYTES))

    def load(b: ir.IRBuilder, s: Any, address: ir.Value, stride: ir.Value) -> ir.Value:
        acc = ir.Constant(kind.llvm, ir.Undefined)
        for i, (r, c) in enumerate(places):
            vector = b.load(pointer(b, at(b, address, stride, r, c), f32x16.llvm), align=1)
            acc = b.insert_value(acc, vector, i)
        return acc

    def store(b: ir.IRBuilder, s: Any, address: ir.Value, stride: ir.Value, acc: ir.Value) -> None:
        for i, (r, c) in enumerate(places):
            b.store(b.extract_value(acc, i), pointer(b, at(b, address, stride, r, c), f32x16.llvm), align=1)

    def add_outer(b: ir.IRBuilder, s: Any, acc: ir.Value, factors: ir.Value, stride: ir.Value,
                  address: ir.Value) -> ir.Value:
        vectors = [pool_vector(b, b.add(address, INT[64](c * LANES * ITEM_BYTES[element])), element)
                   for c in range(COLUMNS)]
        for r in range(rows):
            scalar = b.load(pointer(b, at(b, factors, stride, r), ELEMENT["f32"]), align=1)
            factor = broadcast(b, scalar, LANES)
            for c, vector in enumerate(vectors):
                i = r * COLUMNS + c
                total = call(b, "llvm.fma.v16f32", f32x16.llvm, [vector, factor, b.extract_value(acc, i)])
                acc = b.insert_value(acc, total, i)
        return acc

    def zero(b: ir.IRBuilder, s: Any) -> ir.Value:
        return ir.Constant(kind.llvm, [ir.Constant(f32x16.llvm, [0.0] * LANES)] * len(places))

    i64 = types.int64
    return (
        function(0, lambda: (kind,), zero),
        function(2, lambda a, stride: (kind, i64, i64), load),
        function(3, lambda a, stride, acc: (types.void, i64, i64, kind), store),
        function(4, lambda acc, factors, stride, at: (kind, kind, i64, i64, i64), add_outer))
