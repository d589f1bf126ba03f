"""Attention over pages of q8_0 (see kv_pages.py).

A query becomes 16-bit integers with one scale for the head, q16[d] = RN(q[d] * 32767 / max |q|), whose products with
the integers of K are summed exactly:

    score[t] = (sum over blocks b of 32 dimensions, in order, of dk[b][t] * (sum over d in b of q16[d] * k[d][t])) * dq

q16 is off by at most max |q| / 65534: far less than K is by its own rounding. Values are not rounded any further: their
scale becomes part of p.

    o[d] += sum over t, in order, of RN(p[t] * dv[t][b]) * v[t][d]
"""

import numpy as np

from ggpy.formats.kv import PAGE_TOKENS, QUANT_BLOCK
from ggpy.kernels.cpu.accumulators import SPAN, block_products, make_products
from ggpy.kernels.cpu.attention_memory import FACTOR_BYTES
from ggpy.kernels.cpu.attention_split import SCORE_BYTES, Keys, Values
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.kv_pages import DIM_BYTES
from ggpy.kernels.cpu.simd import (
    absolute,
    as_i32x16,
    concat,
    load_f16x16,
    load_f32x16,
    max_lanes,
    maximum,
    prefetch_l2,
    rint,
    store,
    store_f32,
    store_lanes,
    to_i32,
    trunc_i16,
)

LARGEST = np.float32(32767.0)
SMALLEST = np.float32(1e-30)        # a query below this counts as zero: its scale could not be divided by
BLOCK_BYTES = PAGE_TOKENS * QUANT_BLOCK
SCALE_BYTES = 2 * PAGE_TOKENS       # of a block's scales
products = make_products("i8", from_zero=False)


@device
def ready(x, dim, factor, q, n_rows, row):
    """Stores the query as row `row` of q16 (dim / 2, n_rows, 2), its scale after those of the rows before."""
    top = absolute(load_f32x16(x) * factor)
    for d in range(16, dim, 16):
        top = maximum(top, absolute(load_f32x16(x + d * 4) * factor))
    largest = max_lanes(top)
    inverse = LARGEST / largest if largest > SMALLEST else np.float32(0.0)
    for d in range(0, dim, 32):
        lo = to_i32(rint(load_f32x16(x + d * 4) * factor * inverse))
        hi = to_i32(rint(load_f32x16(x + d * 4 + 64) * factor * inverse))
        store_lanes(q + (d // 2 * n_rows + row) * 4, n_rows * 4, as_i32x16(trunc_i16(concat(lo, hi))))
    store_f32(q + (dim // 2 * n_rows + row) * 4, largest / LARGEST)


@device
def scores(n_rows, k, dim, q, out, ahead):
    for token in range(0, PAGE_TOKENS, SPAN):
        block_products((n_rows, out + token * 4, SCORE_BYTES, q, k + dim * PAGE_TOKENS + token * 2, k + token * 2,
                        dim // QUANT_BLOCK, ahead))


@device
def add(n_rows, v, first, end, p, o, o_stride, dim, ahead, work):
    """The factors p * dv of a block stand at `work` in between."""
    scales = v + dim * PAGE_TOKENS
    for block in range(dim // QUANT_BLOCK):
        prefetch_l2(ahead + dim * PAGE_TOKENS + block * SCALE_BYTES)
        lo, hi = load_f16x16(scales + block * SCALE_BYTES), load_f16x16(scales + block * SCALE_BYTES + SCALE_BYTES // 2)
        for r in range(n_rows):
            store(work + r * FACTOR_BYTES, load_f32x16(p + r * SCORE_BYTES) * lo)
            store(work + r * FACTOR_BYTES + 64, load_f32x16(p + r * SCORE_BYTES + 64) * hi)
        for d in range(0, QUANT_BLOCK, SPAN):
            products((n_rows, o + (block * QUANT_BLOCK + d) * 4, o_stride, work + first * 4, FACTOR_BYTES, 4,
                      v + block * BLOCK_BYTES + first * QUANT_BLOCK + d, QUANT_BLOCK, end - first,
                      ahead + block * BLOCK_BYTES, QUANT_BLOCK))


q8_0_keys = Keys(DIM_BYTES["q8_0"], ready, scores)
q8_0_values = Values(DIM_BYTES["q8_0"], add)
