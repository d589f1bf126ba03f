"""Sums of products held in registers: the inner loops of attention, for scores and for values.

`make_products(element, from_zero)` gives the function `products((n_rows, sums, sums_stride, factors, factor_stride,
factor_step, values, value_step, n, ahead, ahead_step))`. For each row r < n_rows <= MAX_ROWS and lane j < SPAN:

    sums[r][j] = fma(... fma(fma(start, f(r, 0), v(0, j)), f(r, 1), v(1, j)) ..., f(r, n - 1), v(n - 1, j))

with start 0 or what sums[r][j] was, f(r, i) the float at factors + r * factor_stride + i * factor_step, v(i, j) value j
of the element at values + i * value_step, and row r of the sums at sums + r * sums_stride (all in bytes; n > 0). Each
step fetches the line at ahead + i * ahead_step.

`block_products((n_rows, sums, sums_stride, factors, scales, values, n, ahead))` is for values in blocks of 32 int8 with
a scale each, and factors of 16 bits:

    sums[r][j] = fma(... fma(fma(0, d(0, j), s(r, 0, j)), d(1, j), s(r, 1, j)) ..., d(n - 1, j), s(r, n - 1, j)) * f(r)
    s(r, b, j) = the exact integer sum over i < 32 of q(r, 32 b + i) * v(32 b + i, j), as float

with d(b, j) the f16 at scales + 64 b + 2 j, f(r) the float at factors + 64 n * n_rows + 4 r, and pairs of neighbours i
together: v int8 [i / 2][32][2] at values, q int16 [i / 2][n_rows][2] at factors. Lines follow those at `ahead`.

The order is the same for every n_rows, each of which has a loop of its own, all sums in registers. They are made here
and not by Numba because Numba needs 50 ms for each.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.formats.kv import PAGE_TOKENS, QUANT_BLOCK
from ggpy.kernels.cpu.dot import dot2_i16
from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.simd import half_to_float
from ggpy.kernels.cpu.vectors import ELEMENT, INT, broadcast, call, f32x16, function, i16x32, i32x16, pointer

# the most sums that leave registers for their operands: of 32 with 512 bits, or of 16 with 256 bits (two to a vector)
MAX_ROWS, COLUMNS = (8, 2) if current_level().has("avx512f") else (6, 1)
LANES = f32x16.lanes
SPAN = LANES * COLUMNS
ITEM_BYTES = {"f16": 2, "f32": 4, "i8": 1}
PREFETCH_LOCALITY = 2       # into L2: measured 15 to 60 % faster than into L1, which has few misses in flight

Values = Sequence[ir.Value]


def make_products(element: str, *, from_zero: bool) -> Any:
    """`products` for values of "f16", "f32" or "i8"; sums start from 0 or from what is there."""
    return _for_each_row_count(11, lambda b, rows, operands: _products(b, rows, element, from_zero, operands))


def _for_each_row_count(n_operands: int, emit_rows: Callable[[ir.IRBuilder, int, Values], None]) -> Any:
    """A function of a tuple of int64, the first of which is the number of rows; `emit_rows` makes the code for each."""

    def emit(b: ir.IRBuilder, s: Any, operands: ir.Value) -> None:
        n_rows, *rest = (b.extract_value(operands, i) for i in range(n_operands))
        done = b.append_basic_block("done")
        cases = {rows: b.append_basic_block(f"rows{rows}") for rows in range(1, MAX_ROWS + 1)}
        switch = b.switch(n_rows, cases[1])
        for rows, block in cases.items():
            switch.add_case(INT[64](rows), block)
            b.position_at_end(block)
            emit_rows(b, rows, rest)
            b.branch(done)
        b.position_at_end(done)

    return function(1, lambda operands: (types.void, types.UniTuple(types.int64, n_operands)), emit)


def _loop(b: ir.IRBuilder, n: ir.Value, starts: Values, body: Callable[[ir.Value, Values], Values]) -> Values:
    """values = starts; for i in range(n), n > 0: values = body(i, values). Returns the last values."""
    before, loop, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.branch(loop)
    b.position_at_end(loop)
    i = b.phi(INT[64])
    phis = [b.phi(start.type) for start in starts]
    updated = body(i, phis)
    following, end = b.add(i, INT[64](1)), b.block
    b.cbranch(b.icmp_signed("<", following, n), loop, after)
    for phi, start, new in zip([i, *phis], [INT[64](0), *starts], [following, *updated], strict=True):
        phi.add_incoming(start, before)
        phi.add_incoming(new, end)
    b.position_at_end(after)
    return updated


def _at(b: ir.IRBuilder, base: ir.Value, *terms: tuple[ir.Value, ir.Value | int]) -> ir.Value:
    """base plus the products of the terms."""
    for index, stride in terms:
        base = b.add(base, b.mul(index, INT[64](stride) if isinstance(stride, int) else stride))
    return base


def _products(b: ir.IRBuilder, rows: int, element: str, from_zero: bool, operands: Values) -> None:
    """`products` for one number of rows."""
    sums, sums_stride, factors, factor_stride, factor_step, values, value_step, n, ahead, ahead_step = operands
    places = _places(b, rows, sums, sums_stride)

    def step(i: ir.Value, totals: Values) -> Values:
        _prefetch(b, _at(b, ahead, (i, ahead_step)))
        vectors = [_as_floats(b, _at(b, values, (i, value_step), (INT[64](c), LANES * ITEM_BYTES[element])), element)
                   for c in range(COLUMNS)]
        updated = []
        for r in range(rows):
            place = _at(b, factors, (i, factor_step), (INT[64](r), factor_stride))
            factor = broadcast(b, b.load(pointer(b, place, ELEMENT["f32"]), align=1), LANES)
            updated += [_fma(b, vector, factor, totals[r * COLUMNS + c]) for c, vector in enumerate(vectors)]
        return updated

    starts = [_zeros(f32x16) if from_zero else b.load(place, align=1) for place in places]
    for place, total in zip(places, _loop(b, n, starts, step), strict=True):
        b.store(total, place, align=1)


def _block_products(b: ir.IRBuilder, rows: int, operands: Values) -> None:
    """`block_products` for one number of rows."""
    sums, sums_stride, factors, scales, values, n, ahead = operands
    n_pairs = QUANT_BLOCK // 2
    line = 2 * PAGE_TOKENS              # a pair of dimensions of all tokens

    def block(i_block: ir.Value, totals: Values) -> Values:
        first = b.mul(i_block, INT[64](n_pairs))
        _prefetch(b, _at(b, ahead, (n, n_pairs * line), (i_block, line)))

        def step(i: ir.Value, counts: Values) -> Values:
            pair = b.add(first, i)
            _prefetch(b, _at(b, ahead, (pair, line)))
            vectors = [_widened_bytes(b, _at(b, values, (pair, line), (INT[64](c), 2 * LANES)))
                       for c in range(COLUMNS)]
            updated = []
            for r in range(rows):
                place = pointer(b, _at(b, factors, (pair, 4 * rows), (INT[64](r), 4)), INT[32])
                factor = b.bitcast(broadcast(b, b.load(place, align=1), LANES), i16x32.llvm)
                updated += [dot2_i16(b, counts[r * COLUMNS + c], vector, factor) for c, vector in enumerate(vectors)]
            return updated

        counts = _loop(b, INT[64](n_pairs), [_zeros(i32x16)] * len(totals), step)
        scale = [_as_floats(b, _at(b, scales, (i_block, line), (INT[64](c), 2 * LANES)), "f16")
                 for c in range(COLUMNS)]
        return [_fma(b, b.sitofp(count, f32x16.llvm), scale[j % COLUMNS], total)
                for j, (count, total) in enumerate(zip(counts, totals, strict=True))]

    places = _places(b, rows, sums, sums_stride)
    totals = _loop(b, n, [_zeros(f32x16)] * len(places), block)
    own = _at(b, factors, (n, 4 * n_pairs * rows))
    for j, (place, total) in enumerate(zip(places, totals, strict=True)):
        factor = b.load(pointer(b, _at(b, own, (INT[64](j // COLUMNS), 4)), ELEMENT["f32"]), align=1)
        b.store(b.fmul(total, broadcast(b, factor, LANES)), place, align=1)


def _places(b: ir.IRBuilder, rows: int, sums: ir.Value, sums_stride: ir.Value) -> Values:
    """Where the sums are: of each row, COLUMNS vectors."""
    return [pointer(b, _at(b, sums, (INT[64](r), sums_stride), (INT[64](c), 4 * LANES)), f32x16.llvm)
            for r in range(rows) for c in range(COLUMNS)]


def _zeros(vec: Any) -> ir.Constant:
    return ir.Constant(vec.llvm, [0.0 if vec.is_float else 0] * vec.lanes)


def _as_floats(b: ir.IRBuilder, address: ir.Value, element: str) -> ir.Value:
    """LANES values of memory as float32."""
    if element == "f32":
        return b.load(pointer(b, address, f32x16.llvm), align=1)
    bits = b.load(pointer(b, address, ir.VectorType(INT[8 * ITEM_BYTES[element]], LANES)), align=1)
    return half_to_float(b, bits, f32x16.llvm) if element == "f16" else b.sitofp(bits, f32x16.llvm)


def _widened_bytes(b: ir.IRBuilder, address: ir.Value) -> ir.Value:
    """2 * LANES int8 of memory as int16."""
    return b.sext(b.load(pointer(b, address, ir.VectorType(INT[8], 2 * LANES)), align=1), i16x32.llvm)


def _fma(b: ir.IRBuilder, a: ir.Value, c: ir.Value, d: ir.Value) -> ir.Value:
    return call(b, "llvm.fma.v16f32", f32x16.llvm, [a, c, d])


def _prefetch(b: ir.IRBuilder, address: ir.Value) -> None:
    call(b, "llvm.prefetch.p0", ir.VoidType(),
         [pointer(b, address, INT[8]), INT[32](0), INT[32](PREFETCH_LOCALITY), INT[32](1)])


block_products = _for_each_row_count(8, _block_products)
