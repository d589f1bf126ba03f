"""Q6_K: w = d * scale * (q - 32) with q in 0..63, scale in -128..127 per 16 weights, d per 256.

Packed unit of eight blocks, 3392 bytes: d (16 float32), four lines of scales, then for each half of 128 weights eight
lines of high bits and 16 of low bits, as they lie in the file: bits 2 b, 2 b + 1 of the high bits belong to block b,
and lines 8 c..8 c + 7 (c = 0, 1) of the low bits hold blocks c and 2 + c in their low and high halves. Lines stand in
the order in which they are read, which memory rewards.
"""

import numpy as np

from ggpy.formats.k_quants import Q6_K_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import (
    biased_product,
    bits,
    bits_up,
    high_nibbles,
    load_4_lines,
    low_nibbles,
    make_add_pair,
    prefetch_lines,
    scaled_16,
)
from ggpy.kernels.cpu.embed import bits_of_lanes, bytes_at, make_embed
from ggpy.kernels.cpu.file_units import eights, for_each_block, make_add_biased_16, moved_bits, split_nibbles
from ggpy.kernels.cpu.interleave import file_block, interleave_bytes, widen_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.lanes8 import i8x16, load_i8x16, load_i64x8, sext_i32
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import (
    load_f16,
    load_f32x16,
    load_i32x16,
    load_u16,
    shuffle1,
    splat_i32x16,
    sra,
    store,
    to_f32,
)

FILE = file_block(Q6_K_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q6_K].unit_bytes
SCALES, HALVES, HALF_BYTES = 64, 320, 1536
LOW_BITS = 512              # behind the high bits of a half
add_pair = make_add_pair(biased_product(2), scaled_16, gap=2)


@device
def scale(p, s):
    """The scales of the 16 weights number s as float32, from four lines at p."""
    return to_f32(sra(load_i32x16(p + 64 * (s // 4)) << (24 - 8 * (s % 4)), 24))


@device
def scales(p, d, b):
    """d and both scales of block b."""
    return d, scale(p, 2 * b), scale(p, 2 * b + 1)


@device
def with_high_bits(w, h, c):
    """Four registers of low bits with the two bits of block c, 0 or 1, above them."""
    up = 4 - 2 * c
    return (w[0] | bits_up(h[0], up, 48), w[1] | bits_up(h[1], up, 48),
            w[2] | bits_up(h[2], up, 48), w[3] | bits_up(h[3], up, 48))


@device
def with_top_bits(w, h, c):
    """Four registers of low bits with the two bits of block 2 + c above them."""
    down = 2 * c
    return (w[0] | bits(h[0], down, 48), w[1] | bits(h[1], down, 48),
            w[2] | bits(h[2], down, 48), w[3] | bits(h[3], down, 48))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc; blocks come as 0 2 1 3 of each half, which no bit depends on."""
    for u in range(n_blocks // 8):
        p = w + u * UNIT_BYTES
        d = load_f32x16(p)
        for i in range(4):
            half, c = i // 2, i % 2
            high = p + HALVES + HALF_BYTES * half
            low = high + LOW_BITS + 512 * c
            prefetch_lines(p + 896 * i, 14)
            v0, v1 = load_4_lines(low), load_4_lines(low + 256)
            h0, h1 = load_4_lines(high), load_4_lines(high + 256)
            b = 4 * half + c
            add_pair(8 * u + b, n_blocks, m, q, da, ys, n16, acc,
                     with_high_bits(low_nibbles(v0), h0, c) + with_high_bits(low_nibbles(v1), h1, c),
                     with_top_bits(high_nibbles(v0), h0, c) + with_top_bits(high_nibbles(v1), h1, c),
                     scales(p + SCALES, d, b), scales(p + SCALES, d, b + 2))


@device
def pack_block(source, stride, n, unit, i):
    widen_half(source + FILE.d, stride, n, unit)
    interleave_bytes(source + FILE.scales, 16, stride, n, unit + SCALES)
    for half in range(2):
        at = unit + HALVES + HALF_BYTES * half
        interleave_bytes(source + FILE.qh + 32 * half, 32, stride, n, at)
        interleave_bytes(source + FILE.ql + 64 * half, 64, stride, n, at + LOW_BITS)


low_0, low_1, low_2, low_3 = eights(0, 4, 0, 4, 8, 12, 8, 12)
high_0, high_1, high_2, high_3 = eights(0, 0, 0, 0, 4, 4, 4, 4)
low_shifts, high_places = for_each_block(0, 0, 4, 4), for_each_block(4, 2, 0, -2)
halves = shuffle1(i8x16, [*range(0, 16, 2), *range(1, 16, 2)])


@device
def six_bits(low, high):
    return split_nibbles(low, low_shifts()) | moved_bits(high, high_places(), 48)


@device
def decode(p):
    """A file block as a file unit."""
    a, b, h = load_i64x8(p + FILE.ql), load_i64x8(p + FILE.ql + 64), load_i64x8(p + FILE.qh)
    w = (six_bits(low_0(a, b), high_0(h, h)), six_bits(low_1(a, b), high_1(h, h)),
         six_bits(low_2(a, b), high_2(h, h)), six_bits(low_3(a, b), high_3(h, h)))
    return w, (load_f16(p + FILE.d), to_f32(sext_i32(halves(load_i8x16(p + FILE.scales)))))


@device
def write(p, factor, out):
    """The weights of a file block times the factor."""
    d = load_f16(p + FILE.d)
    for s in range(16):
        half, quarter, k = s // 8, s % 8 // 2, s % 2
        q = bits_of_lanes(bytes_at(p + FILE.ql + 64 * half + 32 * (quarter % 2) + 16 * k), 4 * (quarter // 2), 15)
        q = q | bits_of_lanes(bytes_at(p + FILE.qh + 32 * half + 16 * k), 2 * quarter, 3) << 4
        scale = np.int64(load_u16(p + FILE.scales + s)) & 255       # d, behind the last one, is part of the block too
        scale = np.float32((scale ^ 128) - 128)
        store(out + 64 * s, to_f32(q - splat_i32x16(32)) * (d * scale) * factor)


embed = make_embed(256, FILE.size, write)
direct = make_direct(FILE.size, decode, make_add_biased_16(2))
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block, direct)
