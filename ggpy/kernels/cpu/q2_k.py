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
from ggpy.kernels.cpu.blocks import Term, halves_u7, load_4_lines, make_add_pair, prefetch_lines, two_bits
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
def scales(p, d, dm, b):
    """d, dm, both scales and both minimums of block b."""
    return (d, dm, nibble(p, 2 * b, 0), nibble(p, 2 * b + 1, 0), nibble(p, 2 * b, 4), nibble(p, 2 * b + 1, 4))


@device
def value(s, n16, half, scales):
    """RN(S * d) and -RN(M * dm): the sums at n16 are -128 times as large, and dm is given as dm / 128."""
    v = fma(to_f32(s[1]), scales[3], to_f32(s[0]) * scales[2]) * scales[0]
    least = fma(to_f32(broadcast_i32(n16 + half)), scales[5], to_f32(broadcast_i32(n16)) * scales[4]) * scales[1]
    return v, least


@device
def add(f, v, da, ys, scales):
    d = broadcast_f32(da)
    store(f, fma(v[1], d, fma(v[0], d, load_f32x16(f))))


add_pair = make_add_pair(halves_u7, Term(value, add, 6, by_halves=True))


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
            add_pair(8 * u + b, n_blocks, m, q, da, ys, n16, acc, two_bits(v0, shift) + two_bits(v1, shift),
                     two_bits(v0, shift + 2) + two_bits(v1, shift + 2),
                     scales(p + SCALES, d, dm, b), scales(p + SCALES, d, dm, b + 1))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit)
    interleave_half(source + FILE.dmin, stride, n, unit + 32)
    interleave_bytes(source + FILE.scales, 16, stride, n, unit + SCALES)
    interleave_bytes(source + FILE.qs, 64, stride, n, unit + QS)


linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block)
