"""Q4_K: w = d * scale * q - dm * minimum with q in 0..15, scale and minimum in 0..63 per 32 weights, d and dm per 256.

Packed unit of eight blocks, 2304 bytes: d and dm (16 float16 each), three lines of the 12 bytes that hold the 6-bit
scales and minimums, 32 lines of nibbles, all as they lie in the file: of lines 8 i..8 i + 7 the low halves are block
2 i, the high halves block 2 i + 1.
"""

import numpy as np

from ggpy.formats.k_quants import Q4_K_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import (
    high_nibbles,
    load_4_lines,
    low_nibbles,
    make_add_pair,
    prefetch_lines,
    product_u7,
    with_minimum,
)
from ggpy.kernels.cpu.embed import bits_of_lanes, bytes_at, make_embed
from ggpy.kernels.cpu.file_units import add_with_minimum, nibbles_of_pairs
from ggpy.kernels.cpu.interleave import (
    file_block,
    interleave_bytes,
    interleave_half,
    interleave_word,
)
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.lanes8 import as_i8x8
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import load_f16, load_f16x16, load_i32, load_i32x16, splat_i32x16, store, to_f32, zext_i32

FILE = file_block(Q4_K_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q4_K].unit_bytes
SCALES = 64
QS = 256
add_pair = make_add_pair(product_u7, with_minimum)


@device
def scale(p, j):
    """The scales of block j of 8 as float32, from the three lines at p: see formats/k_quants.py for their bits."""
    shift = 8 * (j % 4)
    if j < 4:
        return to_f32((load_i32x16(p) >> shift) & splat_i32x16(63))
    low = (load_i32x16(p + 128) >> shift) & splat_i32x16(15)
    return to_f32(low | ((load_i32x16(p) >> (shift + 2)) & splat_i32x16(48)))


@device
def minimum(p, j):
    """The minimums of block j of 8 as float32."""
    shift = 8 * (j % 4)
    if j < 4:
        return to_f32((load_i32x16(p + 64) >> shift) & splat_i32x16(63))
    low = (load_i32x16(p + 128) >> (shift + 4)) & splat_i32x16(15)
    return to_f32(low | ((load_i32x16(p + 64) >> (shift + 2)) & splat_i32x16(48)))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc; d * scale and dm * minimum are exact, so S meets them at once."""
    for u in range(n_blocks // 8):
        p = w + u * UNIT_BYTES
        d = load_f16x16(p)
        dm = load_f16x16(p + 32)
        for j in range(0, 8, 2):
            lines = p + QS + 256 * j
            prefetch_lines(p + 288 * j, 9)
            a, b = load_4_lines(lines), load_4_lines(lines + 256)
            even, odd = low_nibbles(a) + low_nibbles(b), high_nibbles(a) + high_nibbles(b)
            d0, d1 = d * scale(p + SCALES, j), d * scale(p + SCALES, j + 1)
            m0, m1 = dm * minimum(p + SCALES, j), dm * minimum(p + SCALES, j + 1)
            add_pair(8 * u + j, n_blocks, m, q, da, ys, n16, acc, even, odd, (d0, m0), (d1, m1))


@device
def pack_scales(source, stride, n, unit):
    """What Q4_K and Q5_K blocks begin with: d, dm and the scales."""
    interleave_half(source + FILE.d, stride, n, unit)
    interleave_half(source + FILE.dmin, stride, n, unit + 32)
    for k in range(3):
        interleave_word(source + FILE.scales + 4 * k, stride, n, unit + SCALES + 64 * k)


@device
def pack_block(source, stride, n, unit, i):
    pack_scales(source, stride, n, unit)
    interleave_bytes(source + FILE.qs, 128, stride, n, unit + QS)


@device
def block_scales(p):
    """The scales and the minimums of a file block, a byte for each of eight."""
    low, high = np.int64(load_i32(p + FILE.scales)), np.int64(load_i32(p + FILE.scales + 4))
    both = np.int64(load_i32(p + FILE.scales + 8))
    scale = (low & 0x3F3F3F3F) | (((both & 0x0F0F0F0F) | ((low >> 2) & 0x30303030)) << 32)
    minimum = (high & 0x3F3F3F3F) | ((((both >> 4) & 0x0F0F0F0F) | ((high >> 2) & 0x30303030)) << 32)
    return scale, minimum


@device
def unit_scales(p):
    """d * scale and dm * minimum of the eight blocks of a file block, which are exact."""
    scale, minimum = block_scales(p)
    return (to_f32(zext_i32(as_i8x8(scale))) * load_f16(p + FILE.d),
            to_f32(zext_i32(as_i8x8(minimum))) * load_f16(p + FILE.dmin))


@device
def decode(p):
    """A file block as a file unit."""
    return nibbles_of_pairs(p + FILE.qs), unit_scales(p)


def make_write(numbers):
    """`write` of Q4_K and Q5_K: q of the weights 16 k on in block j of a file block are numbers(p, j, k)."""

    @device
    def write(p, factor, out):
        d, dm = load_f16(p + FILE.d), load_f16(p + FILE.dmin)
        scales, minimums = block_scales(p)
        for j in range(8):
            scale, minimum = d * np.float32((scales >> 8 * j) & 63), dm * np.float32((minimums >> 8 * j) & 63)
            for k in range(2):
                store(out + 128 * j + 64 * k, (to_f32(numbers(p, j, k)) * scale + -minimum) * factor)

    return write


@device
def nibbles_at(qs, j, k):
    """Of the weights 16 k on in block j, as they lie in the file."""
    return bits_of_lanes(bytes_at(qs + 32 * (j // 2) + 16 * k), 4 * (j % 2), 15)


@device
def numbers(p, j, k):
    return nibbles_at(p + FILE.qs, j, k)


embed = make_embed(256, FILE.size, make_write(numbers))
direct = make_direct(FILE.size, decode, add_with_minimum)
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block, direct)
