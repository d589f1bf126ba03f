"""Every quantised format without a layout of its own: w = s * q with q in -128..127, float32 s per 16 weights.

Made by `expand.py`, which has the layout. s = d * scale is exact, but has no common factor per 32 weights, so the
canonical order of block j is, with the exact sums S0 and S1 over its first and last 16 weights,

    t = fma(S1, s1, RN(S0 * s0));  acc[j % 8] = fma(t, da[j], acc[j % 8])
"""

from ggpy.kernels.cpu.blocks import Term, add_value, load_8_lines, make_add_pair, prefetch_lines, signed_product
from ggpy.kernels.cpu.expand import UNIT
from ggpy.kernels.cpu.interleave import file_block
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.matmul import make_expert_linear, make_linear
from ggpy.kernels.cpu.simd import fma, load_f32x16, to_f32

PACKED = file_block(UNIT)


@device
def value(s, n16, half, scales):
    """t of a block; scales: s0, s1."""
    return fma(to_f32(s[1]), scales[1], to_f32(s[0]) * scales[0])


add_pair = make_add_pair(signed_product, Term(value, add_value, 2, by_halves=True))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * PACKED.size
        prefetch_lines(p, 20)
        s = p + PACKED.scale
        add_pair(j, n_blocks, m, q, da, ys, n16, acc, load_8_lines(p + PACKED.q), load_8_lines(p + PACKED.q + 512),
                 (load_f32x16(s), load_f32x16(s + 64)), (load_f32x16(s + 128), load_f32x16(s + 192)))


linear = make_linear(rows)
expert_linear = make_expert_linear(rows)
