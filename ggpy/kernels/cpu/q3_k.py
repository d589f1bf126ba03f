"""Q3_K: w = d * scale * (q - 4) with q in 0..7, scale in -32..31 per 16 weights, d per 256.

Packed unit of eight blocks, 1792 bytes: d (16 float32), three lines of the 12 bytes that hold the 6-bit scales, eight
lines of third bits (bit b of a byte belongs to block b), 16 lines of low bits, all as they lie in the file: of each
half of 128 weights, bits 2 b, 2 b + 1 of its eight lines belong to its block b.
"""

from ggpy.formats.k_quants import Q3_K_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import (
    biased_product,
    load_4_lines,
    make_add_pair,
    prefetch_lines,
    scaled_16,
    two_bits,
    with_bit,
)
from ggpy.kernels.cpu.interleave import (
    file_block,
    interleave_bytes,
    interleave_word,
    widen_half,
)
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import load_f32x16, load_i32x16, splat_i32x16, to_f32

FILE = file_block(Q3_K_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q3_K].unit_bytes
SCALES, HIGH, QS = 64, 256, 768
add_pair = make_add_pair(biased_product(5), scaled_16)


@device
def scale(p, s):
    """The scales of the 16 weights number s as float32, from three lines at p: see formats/k_quants.py for the bits."""
    low = (load_i32x16(p + 64 * (s % 8 // 4)) >> (8 * (s % 4) + 4 * (s // 8))) & splat_i32x16(15)
    high = (load_i32x16(p + 128) >> (8 * (s % 4) + 2 * (s // 4))) & splat_i32x16(3)
    return to_f32((low | (high << 4)) - splat_i32x16(32))


@device
def scales(p, d, b):
    """d and both scales of block b."""
    return d, scale(p, 2 * b), scale(p, 2 * b + 1)


@device
def add_blocks(p, b, d, j, n_blocks, m, q, da, ys, n16, acc):
    """Blocks b and b + 1 of the unit at p; b is a constant, so that the compiler knows all shifts."""
    low = p + QS + 512 * (b // 4)
    prefetch_lines(p + 448 * (b // 2), 7)
    v0, v1 = load_4_lines(low), load_4_lines(low + 256)
    h0, h1 = load_4_lines(p + HIGH), load_4_lines(p + HIGH + 256)
    shift = 2 * (b % 4)
    even = with_bit(two_bits(v0, shift), h0, b, 2) + with_bit(two_bits(v1, shift), h1, b, 2)
    odd = with_bit(two_bits(v0, shift + 2), h0, b + 1, 2) + with_bit(two_bits(v1, shift + 2), h1, b + 1, 2)
    add_pair(j + b, n_blocks, m, q, da, ys, n16, acc, even, odd,
             scales(p + SCALES, d, b), scales(p + SCALES, d, b + 1))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for u in range(n_blocks // 8):
        p = w + u * UNIT_BYTES
        d = load_f32x16(p)
        add_blocks(p, 0, d, 8 * u, n_blocks, m, q, da, ys, n16, acc)
        add_blocks(p, 2, d, 8 * u, n_blocks, m, q, da, ys, n16, acc)
        add_blocks(p, 4, d, 8 * u, n_blocks, m, q, da, ys, n16, acc)
        add_blocks(p, 6, d, 8 * u, n_blocks, m, q, da, ys, n16, acc)


@device
def pack_block(source, stride, n, unit, i):
    widen_half(source + FILE.d, stride, n, unit)
    for k in range(3):
        interleave_word(source + FILE.scales + 4 * k, stride, n, unit + SCALES + 64 * k)
    interleave_bytes(source + FILE.hmask, 32, stride, n, unit + HIGH)
    interleave_bytes(source + FILE.qs, 64, stride, n, unit + QS)


linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block)
