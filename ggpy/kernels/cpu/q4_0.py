"""Q4_0: w = d * (q - 8) with q in 0..15, d per 32 weights.

Packed unit of two blocks, 576 bytes: d of both (16 float16 each), then four lines of nibbles for each (see `nibbles`).
"""

from ggpy.formats.q4 import Q4_0_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import biased_product, make_add_pair, nibbles, prefetch_lines, scaled
from ggpy.kernels.cpu.embed import bits_of_lanes, bytes_at, make_embed
from ggpy.kernels.cpu.file_units import make_add_biased, nibbles_of_blocks, scales
from ggpy.kernels.cpu.interleave import file_block, interleave, interleave_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import load_f16, load_f16x16, splat_i32x16, store, to_f32

FILE = file_block(Q4_0_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q4_0].unit_bytes
QS = 64
add_pair = make_add_pair(biased_product(4), scaled)


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * UNIT_BYTES
        prefetch_lines(p, 9)
        add_pair(j, n_blocks, m, q, da, ys, n16, acc, nibbles(p + QS), nibbles(p + QS + 256),
                 (load_f16x16(p),), (load_f16x16(p + 32),))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit + 32 * i)
    interleave(source + FILE.qs, stride, n, unit + QS + 256 * i)


@device
def decode(p):
    """Eight file blocks as a file unit."""
    return nibbles_of_blocks(p + FILE.qs, FILE.size), scales(p + FILE.d, FILE.size)


@device
def write(p, factor, out):
    """The weights of a file block times the factor."""
    d, v = load_f16(p + FILE.d), bytes_at(p + FILE.qs)
    store(out, to_f32(bits_of_lanes(v, 0, 15) - splat_i32x16(8)) * d * factor)
    store(out + 64, to_f32(bits_of_lanes(v, 4, 15) - splat_i32x16(8)) * d * factor)


embed = make_embed(32, FILE.size, write)
direct = make_direct(8 * FILE.size, decode, make_add_biased(4))
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 2, pack_block, direct)
