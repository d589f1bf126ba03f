"""Q2_K: w = d * scale * q - dm * minimum with q in 0..3, scale and minimum in 0..15 per 16 weights, d and dm per 256.

Minimums per 16 weights meet the sums of 16 activations, so the canonical order of block j is, after the term of S,

    M = minimum[0] * (sum of the first 16) + minimum[1] * (sum of the last 16), exact
    acc[j % 8] = fma(-RN(M * dm), da[j], acc[j % 8])

Packed unit of eight blocks, 1344 bytes: d and dm (16 float16 each), four lines of scales (low half of a byte) and
minimums (high half), 16 lines of weights, all as they lie in the file: of each half of 128 weights, bits 2 b, 2 b + 1
of its eight lines belong to its block b.
"""

from ggpy.formats.k_quants import Q2_K_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import load_4_lines, prefetch_lines, sums_u7, two_bits
from ggpy.kernels.cpu.interleave import file_block, interleave_bytes, interleave_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import (
    broadcast_f32,
    broadcast_i32,
    fma,
    load_f16x16,
    load_f32x16,
    load_i32x16,
    splat_i32x16,
    store,
    to_f32,
)

FILE = file_block(Q2_K_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q2_K].unit_bytes
SCALES, QS = 64, 320


@device
def nibble(p, s, shift):
    """Scales (shift 0) or minimums (shift 4) of the 16 weights number s as float32, from four lines at p."""
    return to_f32((load_i32x16(p + 64 * (s // 4)) >> (8 * (s % 4) + shift)) & splat_i32x16(15))


@device
def both(p, b, shift):
    """Both scales (shift 0) or minimums (shift 4) of block b."""
    return nibble(p, 2 * b, shift), nibble(p, 2 * b + 1, shift)


@device
def block_term(acc, y, da, n16, half, w, d, dm, scales, minimums):
    """acc + da * (S * d) - da * (M * dm), where the sums at n16 are -128 times as large and dm is given as dm / 128."""
    a, c = sums_u7(0, 0, y, w)
    s = fma(to_f32(c), scales[1], to_f32(a) * scales[0]) * d
    least = fma(to_f32(broadcast_i32(n16 + half)), minimums[1], to_f32(broadcast_i32(n16)) * minimums[0]) * dm
    return fma(least, da, fma(s, da, acc))


@device
def add_pair(j, m, q, da, n16, acc, w, x, d, dm, w_scales, w_minimums, x_scales, x_minimums):
    """Blocks j and j + 1 with weights w and x, times m activation rows."""
    f0 = acc + (j % 8) * (64 * m)
    f1 = f0 + 64 * m
    for t in range(m):
        s0 = j * m + t
        s1 = s0 + m
        store(f0 + t * 64, block_term(load_f32x16(f0 + t * 64), q + s0 * 32, broadcast_f32(da + s0 * 4),
                                      n16 + (s0 + j * m) * 4, m * 4, w, d, dm, w_scales, w_minimums))
        store(f1 + t * 64, block_term(load_f32x16(f1 + t * 64), q + s1 * 32, broadcast_f32(da + s1 * 4),
                                      n16 + (s1 + j * m + m) * 4, m * 4, x, d, dm, x_scales, x_minimums))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for u in range(n_blocks // 8):
        p = w + u * UNIT_BYTES
        d = load_f16x16(p)
        dm = load_f16x16(p + 32) * (1.0 / 128)
        for b in range(0, 8, 2):
            low = p + QS + 512 * (b // 4)
            prefetch_lines(p + 384 * (b // 2), 6)
            v0, v1 = load_4_lines(low), load_4_lines(low + 256)
            shift = 2 * (b % 4)
            add_pair(8 * u + b, m, q, da, n16, acc, two_bits(v0, shift) + two_bits(v1, shift),
                     two_bits(v0, shift + 2) + two_bits(v1, shift + 2), d, dm,
                     both(p + SCALES, b, 0), both(p + SCALES, b, 4),
                     both(p + SCALES, b + 1, 0), both(p + SCALES, b + 1, 4))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit)
    interleave_half(source + FILE.dmin, stride, n, unit + 32)
    interleave_bytes(source + FILE.scales, 16, stride, n, unit + SCALES)
    interleave_bytes(source + FILE.qs, 64, stride, n, unit + QS)


linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block)
