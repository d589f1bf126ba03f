"""Every quantised format without a layout of its own: w = s * q with q in -128..127, float32 s per 16 weights.

Made by `expand.py`, which has the layout. s = d * scale is exact, but has no common factor per 32 weights, so the
canonical order of block j is, with the exact sums S0 and S1 over its first and last 16 weights,

    t = fma(S1, s1, RN(S0 * s0));  acc[j % 8] = fma(t, da[j], acc[j % 8])
"""

from ggpy.kernels.cpu.blocks import load_8_lines, prefetch_lines, signed_product
from ggpy.kernels.cpu.expand import UNIT
from ggpy.kernels.cpu.interleave import file_block
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.matmul import make_expert_linear, make_linear
from ggpy.kernels.cpu.simd import broadcast_f32, fma, load_f32x16, store, to_f32

PACKED = file_block(UNIT)
ready, half_sums = signed_product


@device
def scaled_sum(n16, half, y, w, s0, s1):
    """t of one block."""
    a, c = half_sums(n16, half, y, w)
    return fma(to_f32(c), s1, to_f32(a) * s0)


@device
def add_pair(j, m, q, da, n16, acc, w, x, w0, w1, x0, x1):
    """Blocks j and j + 1 with weights w and x and their scales, times m activation rows."""
    w, x = ready(w), ready(x)
    f0 = acc + (j % 8) * (64 * m)
    f1 = f0 + 64 * m
    for t in range(m):
        s0 = j * m + t
        s1 = s0 + m
        u = scaled_sum(n16 + (s0 + j * m) * 4, m * 4, q + s0 * 32, w, w0, w1)
        v = scaled_sum(n16 + (s1 + j * m + m) * 4, m * 4, q + s1 * 32, x, x0, x1)
        store(f0 + t * 64, fma(u, broadcast_f32(da + s0 * 4), load_f32x16(f0 + t * 64)))
        store(f1 + t * 64, fma(v, broadcast_f32(da + s1 * 4), load_f32x16(f1 + t * 64)))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * PACKED.size
        prefetch_lines(p, 20)
        s = p + PACKED.scale
        add_pair(j, m, q, da, n16, acc, load_8_lines(p + PACKED.q), load_8_lines(p + PACKED.q + 512),
                 load_f32x16(s), load_f32x16(s + 64), load_f32x16(s + 128), load_f32x16(s + 192))


linear = make_linear(rows)
expert_linear = make_expert_linear(rows)
