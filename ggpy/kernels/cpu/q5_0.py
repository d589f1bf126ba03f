"""Q5_0: w = d * (q - 16) with q in 0..31, d per 32 weights.

Packed unit of two blocks, 704 bytes: d of both (16 float16 each); then for each block a line of fifth bits, where bit k
of byte i of a row is that of weight 4 k + i, and four lines of nibbles as they lie in the file (see `nibbles`).
"""

import numpy as np

from ggpy.formats.q5 import Q5_0_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import biased_product, bits, bits_up, make_add_pair, nibbles, prefetch_lines, scaled
from ggpy.kernels.cpu.embed import bits_of_lanes, bytes_at, make_embed
from ggpy.kernels.cpu.file_units import make_add_biased, nibbles_of_blocks, scales
from ggpy.kernels.cpu.interleave import (
    file_block,
    interleave,
    interleave_half,
    interleave_word,
)
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.lanes8 import as_i8x32, bits_of_byte, gather_i32x8
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import (
    lane_index,
    load_f16,
    load_f16x16,
    load_i8x64,
    load_i32,
    load_i32x16,
    splat_i32x16,
    store,
    to_f32,
)

FILE = file_block(Q5_0_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q5_0].unit_bytes
QH = 64
BLOCK_BYTES = 320           # of fifth bits and nibbles
add_pair = make_add_pair(biased_product(3), scaled)


@device
def five_bits(p):
    """The weights 0..31 of a block: a line of fifth bits, four of nibbles."""
    h = load_i8x64(p)
    w = nibbles(p + 64)
    return (w[0] | bits_up(h, 4, 16), w[1] | bits_up(h, 3, 16), w[2] | bits_up(h, 2, 16), w[3] | bits_up(h, 1, 16),
            w[4] | bits(h, 0, 16), w[5] | bits(h, 1, 16), w[6] | bits(h, 2, 16), w[7] | bits(h, 3, 16))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * UNIT_BYTES
        prefetch_lines(p, 11)
        add_pair(j, n_blocks, m, q, da, ys, n16, acc, five_bits(p + QH), five_bits(p + QH + BLOCK_BYTES),
                 (load_f16x16(p),), (load_f16x16(p + 32),))


@device
def interleave_fifth_bits(source, stride, n, packed):
    """32 bits of each of n rows, bit 4 k + i moved to bit k of byte i, to one line."""
    interleave_word(source, stride, n, packed)
    h = load_i32x16(packed)
    v = splat_i32x16(0)
    for k in range(8):
        four = (h >> (4 * k)) & splat_i32x16(15)
        one_a_byte = four | (four << 7) | (four << 14) | (four << 21)
        v = v | ((one_a_byte & splat_i32x16(0x01010101)) << k)
    store(packed, v)


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit + 32 * i)
    interleave_fifth_bits(source + FILE.qh, stride, n, unit + QH + BLOCK_BYTES * i)
    interleave(source + FILE.qs, stride, n, unit + QH + BLOCK_BYTES * i + 64)


first_bits, second_bits, third_bits, last_bits = bits_of_byte


@device
def with_fifth_bits(w, p, stride):
    """Four registers of nibbles with the fifth bits of eight blocks, 32 of each, `stride` apart."""
    h = as_i8x32(gather_i32x8(p, stride))
    return (w[0] | first_bits(h, np.int8(16)), w[1] | second_bits(h, np.int8(16)),
            w[2] | third_bits(h, np.int8(16)), w[3] | last_bits(h, np.int8(16)))


@device
def decode(p):
    """Eight file blocks as a file unit."""
    w = with_fifth_bits(nibbles_of_blocks(p + FILE.qs, FILE.size), p + FILE.qh, FILE.size)
    return w, scales(p + FILE.d, FILE.size)


@device
def write(p, factor, out):
    """The weights of a file block times the factor."""
    d, v, fifth = load_f16(p + FILE.d), bytes_at(p + FILE.qs), splat_i32x16(load_i32(p + FILE.qh))
    low, high = (fifth >> lane_index()) & splat_i32x16(1), ((fifth >> 16) >> lane_index()) & splat_i32x16(1)
    store(out, to_f32((bits_of_lanes(v, 0, 15) | low << 4) - splat_i32x16(16)) * d * factor)
    store(out + 64, to_f32((bits_of_lanes(v, 4, 15) | high << 4) - splat_i32x16(16)) * d * factor)


embed = make_embed(32, FILE.size, write)
direct = make_direct(8 * FILE.size, decode, make_add_biased(3))
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 2, pack_block, direct)
