"""Activations to int8: one scale per 32 values, in the layout that the integer dot products read.

For a block of 32 values x of a row: da = RN(max|x| / 127), or 0 if that is subnormal (x / da could pass 127); then
q = RN(x / da) (0 where da is 0), ys = -RN(da * sum(q)), and for each half of 16 the integer n16 = -128 * sum(q). Rows
stand in chunks of CHUNK_ROWS, so that a block of all rows of a chunk is contiguous. With m rows in chunk c and n_blocks
blocks a row (the last one zeros if their number is padded):

    q    int8     at  c * CHUNK_ROWS * n_blocks * 32 + (j * m + t) * 32      block j of the chunk's row t
    da   float32  at  c * CHUNK_ROWS * n_blocks + j * m + t                  ys likewise
    n16  int32    at  2 * c * CHUNK_ROWS * n_blocks + (2 * j + half) * m + t
"""

import numpy as np

from ggpy.kernels.cpu.arguments import CHUNK_ROWS
from ggpy.kernels.cpu.arguments import QUANTIZE as ARGS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import (
    absolute,
    concat,
    load_f32x16,
    load_i64,
    max_lanes,
    maximum,
    rint,
    splat_f32x16,
    splat_i8x32,
    store,
    store_f32,
    store_i32,
    sum_lanes_i32,
    to_i32,
    trunc_i8,
)

SMALLEST_NORMAL = np.float32(2.0**-126)


@device
def quantize_block(x, q, da, ys, n16, half_stride):
    """Quantises 32 floats at x; writes 32 bytes, the two floats and the two integers."""
    lo = load_f32x16(x)
    hi = load_f32x16(x + 64)
    scale = max_lanes(maximum(absolute(lo), absolute(hi))) / np.float32(127.0)
    if scale < SMALLEST_NORMAL:
        scale = np.float32(0.0)
    divisor = splat_f32x16(scale if scale != np.float32(0.0) else np.float32(1.0))
    a = to_i32(rint(lo / divisor))
    c = to_i32(rint(hi / divisor))
    store(q, trunc_i8(concat(a, c)))
    sum_a = sum_lanes_i32(a)
    sum_c = sum_lanes_i32(c)
    store_f32(da, scale)
    store_f32(ys, -(scale * np.float32(sum_a + sum_c)))
    store_i32(n16, np.int32(-128) * sum_a)
    store_i32(n16 + half_stride, np.int32(-128) * sum_c)


@device
def quantize_blocks(x, first, end, n_filled, base, t, m, q, da, ys, n16):
    """Quantises blocks first..end of the row at x, n_filled * 32 floats, as row t of the m of a chunk at `base`.

    `base` counts blocks of the chunks before.
    """
    for j in range(first, end):
        at = base + j * m + t
        half = 2 * (base + j * m) + t
        if j < n_filled:
            quantize_block(x + j * 128, q + at * 32, da + at * 4, ys + at * 4, n16 + half * 4, m * 4)
        else:
            store(q + at * 32, splat_i8x32(0))
            store_f32(da + at * 4, np.float32(0.0))
            store_f32(ys + at * 4, np.float32(0.0))
            store_i32(n16 + half * 4, np.int32(0))
            store_i32(n16 + (half + m) * 4, np.int32(0))


@device
def quantize_run(x, first, end, row, n_rows, n_blocks, n_filled, q, da, ys, n16):
    """Quantises blocks first..end of row `row` of `n_rows`, which starts at x, to their place in the chunked layout."""
    t = row % CHUNK_ROWS
    m = min(CHUNK_ROWS, n_rows - (row - t))
    quantize_blocks(x, first, end, n_filled, (row - t) * n_blocks, t, m, q, da, ys, n16)


@device
def quantize_row(x, row, n_rows, n_blocks, n_filled, q, da, ys, n16):
    """Quantises the whole of row `row`, n_filled * 32 floats at x."""
    quantize_run(x, 0, n_blocks, row, n_rows, n_blocks, n_filled, q, da, ys, n16)


@kernel
def quantize(args, step, item, n_items):
    """x (n_rows, n_filled * 32) float32 to int8, rows shared among the items."""
    n_rows = load_i64(step + load_i64(args + ARGS.n_rows))
    n_filled = load_i64(args + ARGS.n_filled)
    for row in range(n_rows * item // n_items, n_rows * (item + 1) // n_items):
        quantize_row(load_i64(args + ARGS.x) + row * n_filled * 128, row, n_rows, load_i64(args + ARGS.n_blocks),
                     n_filled, load_i64(args + ARGS.q), load_i64(args + ARGS.da), load_i64(args + ARGS.ys),
                     load_i64(args + ARGS.n16))
