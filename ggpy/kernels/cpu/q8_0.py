"""Q8_0: w = d * q with q in -128..127, d per 32 weights.

Packed unit of two blocks, 1088 bytes: d of both (16 float16 each), then eight lines of weights for each.
"""

from ggpy.formats.q8 import Q8_0_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import load_8_lines, make_add_pair, prefetch_lines, scaled, signed_product
from ggpy.kernels.cpu.dot import ready_i8
from ggpy.kernels.cpu.embed import make_embed
from ggpy.kernels.cpu.file_units import add_i8, high_eights, low_eights, scales
from ggpy.kernels.cpu.interleave import file_block, interleave_bytes, interleave_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.lanes8 import as_i64x8, i64x8, load_i8x16, load_i8x32, sext_i32
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import as_i8x64, concat, load_f16, load_f16x16, shuffle2, store, to_f32

FILE = file_block(Q8_0_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q8_0].unit_bytes
QS = 64
add_pair = make_add_pair(signed_product, scaled)


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * UNIT_BYTES
        prefetch_lines(p, 17)
        add_pair(j, n_blocks, m, q, da, ys, n16, acc, load_8_lines(p + QS), load_8_lines(p + QS + 512),
                 (load_f16x16(p),), (load_f16x16(p + 32),))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit + 32 * i)
    interleave_bytes(source + FILE.qs, 32, stride, n, unit + QS + 512 * i)


even_lanes = shuffle2(i64x8, [0, 1, 4, 5, 8, 9, 12, 13])
odd_lanes = shuffle2(i64x8, [2, 3, 6, 7, 10, 11, 14, 15])


@device
def two_blocks(p, q):
    """The weights of the blocks at p and at q, 16 of them to a lane of 128 bits."""
    return as_i64x8(concat(load_i8x32(p + FILE.qs), load_i8x32(q + FILE.qs)))


@device
def decode(p):
    """Eight file blocks as a file unit."""
    a, b = two_blocks(p, p + 2 * FILE.size), two_blocks(p + FILE.size, p + 3 * FILE.size)
    c, d = two_blocks(p + 4 * FILE.size, p + 6 * FILE.size), two_blocks(p + 5 * FILE.size, p + 7 * FILE.size)
    low_ab, high_ab = low_eights(a, b), high_eights(a, b)
    low_cd, high_cd = low_eights(c, d), high_eights(c, d)
    w = (ready_i8(as_i8x64(even_lanes(low_ab, low_cd))), ready_i8(as_i8x64(even_lanes(high_ab, high_cd))),
         ready_i8(as_i8x64(odd_lanes(low_ab, low_cd))), ready_i8(as_i8x64(odd_lanes(high_ab, high_cd))))
    return w, scales(p + FILE.d, FILE.size)


@device
def write(p, factor, out):
    """The weights of a file block times the factor."""
    d = load_f16(p + FILE.d)
    store(out, to_f32(sext_i32(load_i8x16(p + FILE.qs))) * d * factor)
    store(out + 64, to_f32(sext_i32(load_i8x16(p + FILE.qs + 16))) * d * factor)


embed = make_embed(32, FILE.size, write)
direct = make_direct(8 * FILE.size, decode, add_i8)
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 2, pack_block, direct)
