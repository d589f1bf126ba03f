"""Sums of products held in registers: the inner loop of attention, for scores and for values.

`make_products(element, from_zero)` gives the function `products((n_rows, sums, sums_stride, factors, factor_stride,
factor_step, values, value_step, n, ahead, ahead_step))`. For each row r < n_rows <= MAX_ROWS and lane j < SPAN:

    sums[r][j] = fma(... fma(fma(start, f(r, 0), v(0, j)), f(r, 1), v(1, j)) ..., f(r, n - 1), v(n - 1, j))

with start 0 or what sums[r][j] was, f(r, i) the float at factors + r * factor_stride + i * factor_step, v(i, j) value j
of the pool's type at values + i * value_step, and row r of the sums at sums + r * sums_stride (all in bytes; n > 0).
Each step fetches the line at ahead + i * ahead_step. The order is the same for every n_rows, each of which has a loop
of its own, all sums in registers. They are made here and not by Numba because Numba needs 50 ms for each.
"""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.simd import ELEMENT, INT, broadcast, call, f32x16, function, half_to_float, pointer

# the most sums that leave registers for their operands: of 32 with 512 bits, or of 16 with 256 bits (two to a vector)
MAX_ROWS, COLUMNS = (8, 2) if current_level().has("avx512f") else (6, 1)
LANES = f32x16.lanes
SPAN = LANES * COLUMNS
ITEM_BYTES = {"f16": 2, "f32": 4}
N_OPERANDS = 11
PREFETCH_LOCALITY = 2       # into L2: measured 15 to 60 % faster than into L1, which has few misses in flight


def make_products(element: str, *, from_zero: bool) -> Any:
    """`products` for pools of "f16" or "f32"; sums start from 0 or from what is there."""

    def emit(b: ir.IRBuilder, s: Any, operands: ir.Value) -> None:
        n_rows, *rest = (b.extract_value(operands, i) for i in range(N_OPERANDS))
        done = b.append_basic_block("done")
        cases = {rows: b.append_basic_block(f"rows{rows}") for rows in range(1, MAX_ROWS + 1)}
        switch = b.switch(n_rows, cases[1])
        for rows, block in cases.items():
            switch.add_case(INT[64](rows), block)
            b.position_at_end(block)
            _loop(b, rows, element, from_zero, rest)
            b.branch(done)
        b.position_at_end(done)

    return function(1, lambda operands: (types.void, types.UniTuple(types.int64, N_OPERANDS)), emit)


def _loop(b: ir.IRBuilder, rows: int, element: str, from_zero: bool, operands: Sequence[ir.Value]) -> None:
    """The loop for one number of rows."""
    sums, sums_stride, factors, factor_stride, factor_step, values, value_step, n, ahead, ahead_step = operands
    i64 = INT[64]

    def element_at(base: ir.Value, *terms: tuple[ir.Value, ir.Value]) -> ir.Value:
        for index, stride in terms:
            base = b.add(base, b.mul(index, stride))
        return base

    places = [pointer(b, element_at(sums, (i64(r), sums_stride), (i64(c), i64(4 * LANES))), f32x16.llvm)
              for r in range(rows) for c in range(COLUMNS)]
    zero = ir.Constant(f32x16.llvm, [0.0] * LANES)
    starts = [zero if from_zero else b.load(place, align=1) for place in places]
    before, loop, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.branch(loop)

    b.position_at_end(loop)
    i = b.phi(i64)
    totals = [b.phi(f32x16.llvm) for _ in places]
    _prefetch(b, element_at(ahead, (i, ahead_step)))
    vectors = [_pool_vector(b, element_at(values, (i, value_step), (i64(c), i64(LANES * ITEM_BYTES[element]))), element)
               for c in range(COLUMNS)]
    updated = []
    for r in range(rows):
        place = element_at(factors, (i, factor_step), (i64(r), factor_stride))
        factor = broadcast(b, b.load(pointer(b, place, ELEMENT["f32"]), align=1), LANES)
        for c, vector in enumerate(vectors):
            total = totals[r * COLUMNS + c]
            updated.append(call(b, "llvm.fma.v16f32", f32x16.llvm, [vector, factor, total]))
    following = b.add(i, i64(1))
    b.cbranch(b.icmp_signed("<", following, n), loop, after)
    for phi, start, new in zip([i, *totals], [i64(0), *starts], [following, *updated], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(new, loop)

    b.position_at_end(after)
    for place, total in zip(places, updated, strict=True):
        b.store(total, place, align=1)


def _pool_vector(b: ir.IRBuilder, address: ir.Value, element: str) -> ir.Value:
    """LANES values of a pool as float32."""
    if element == "f16":
        return half_to_float(b, b.load(pointer(b, address, ir.VectorType(INT[16], LANES)), align=1), f32x16.llvm)
    return b.load(pointer(b, address, f32x16.llvm), align=1)


def _prefetch(b: ir.IRBuilder, address: ir.Value) -> None:
    call(b, "llvm.prefetch.p0", ir.VoidType(),
         [pointer(b, address, INT[8]), INT[32](0), INT[32](PREFETCH_LOCALITY), INT[32](1)])
