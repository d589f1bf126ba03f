"""Q5_K: w = d * scale * q - dm * minimum with q in 0..31, otherwise like Q4_K.

Packed unit of eight blocks, 2816 bytes: d and dm (16 float16 each), three lines of scales and minimums as in q4_k.py,
eight lines of fifth bits (bit b of a byte belongs to block b), 32 lines of nibbles as in q4_k.py.
"""

from ggpy.formats.k_quants import Q5_K_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import (
    high_nibbles,
    load_4_lines,
    low_nibbles,
    make_add_pair,
    prefetch_lines,
    product_u7,
    with_bit,
    with_minimum,
)
from ggpy.kernels.cpu.embed import bits_of_lanes, bytes_at, make_embed
from ggpy.kernels.cpu.file_units import add_with_minimum, for_each_block, moved_bits, nibbles_of_pairs
from ggpy.kernels.cpu.interleave import file_block, interleave_bytes
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.lanes8 import broadcast_8xi8
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.q4_k import SCALES, make_write, minimum, nibbles_at, pack_scales, scale, unit_scales
from ggpy.kernels.cpu.simd import load_f16x16

FILE = file_block(Q5_K_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q5_K].unit_bytes
QH, QS = 256, 768
add_pair = make_add_pair(product_u7, with_minimum)


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc; d * scale and dm * minimum are exact, so S meets them at once."""
    for u in range(n_blocks // 8):
        p = w + u * UNIT_BYTES
        d = load_f16x16(p)
        dm = load_f16x16(p + 32)
        for j in range(0, 8, 2):
            lines = p + QS + 256 * j
            prefetch_lines(p + 352 * j, 11)
            a, b = load_4_lines(lines), load_4_lines(lines + 256)
            g, h = load_4_lines(p + QH), load_4_lines(p + QH + 256)
            even = with_bit(low_nibbles(a), g, j, 4) + with_bit(low_nibbles(b), h, j, 4)
            odd = with_bit(high_nibbles(a), g, j + 1, 4) + with_bit(high_nibbles(b), h, j + 1, 4)
            d0, d1 = d * scale(p + SCALES, j), d * scale(p + SCALES, j + 1)
            m0, m1 = dm * minimum(p + SCALES, j), dm * minimum(p + SCALES, j + 1)
            add_pair(8 * u + j, n_blocks, m, q, da, ys, n16, acc, even, odd, (d0, m0), (d1, m1))


@device
def pack_block(source, stride, n, unit, i):
    pack_scales(source, stride, n, unit)
    interleave_bytes(source + FILE.qh, 32, stride, n, unit + QH)
    interleave_bytes(source + FILE.qs, 128, stride, n, unit + QS)


fifth_bits = for_each_block(4, 3, 2, 1, 0, -1, -2, -3)


@device
def decode(p):
    """A file block as a file unit."""
    w, h, places = nibbles_of_pairs(p + FILE.qs), p + FILE.qh, fifth_bits()
    return (w[0] | moved_bits(broadcast_8xi8(h), places, 16), w[1] | moved_bits(broadcast_8xi8(h + 8), places, 16),
            w[2] | moved_bits(broadcast_8xi8(h + 16), places, 16),
            w[3] | moved_bits(broadcast_8xi8(h + 24), places, 16)), unit_scales(p)


@device
def numbers(p, j, k):
    """q of the weights 16 k on in block j of a file block."""
    return nibbles_at(p + FILE.qs, j, k) | bits_of_lanes(bytes_at(p + FILE.qh + 16 * k), j, 1) << 4


embed = make_embed(256, FILE.size, make_write(numbers))
direct = make_direct(FILE.size, decode, add_with_minimum)
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block, direct)
