"""Q4_1: w = d * q + m with q in 0..15, d and m per 32 weights.

Packed unit of two blocks, 640 bytes: for each block d and m (16 float16 each), then for each four lines of nibbles as
they lie in the file: weight 4 k + i of a row in the low half of byte i of line k, weight 16 + 4 k + i in the high half.
"""

from ggpy.formats.q4 import Q4_1_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import make_add_pair, nibbles, prefetch_lines, product_u7, with_minimum
from ggpy.kernels.cpu.file_units import add_with_minimum, nibbles_of_blocks, scales_and_minimums
from ggpy.kernels.cpu.interleave import file_block, interleave, interleave_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.mapped import make_direct
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import load_f16x16

FILE = file_block(Q4_1_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.Q4_1].unit_bytes
QS = 128
add_pair = make_add_pair(product_u7, with_minimum)


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc; as w = d * q - (-m), the minimum is -m."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * UNIT_BYTES
        prefetch_lines(p, 10)
        add_pair(j, n_blocks, m, q, da, ys, n16, acc, nibbles(p + QS), nibbles(p + QS + 256),
                 (load_f16x16(p), load_f16x16(p + 32) * (-1.0)), (load_f16x16(p + 64), load_f16x16(p + 96) * (-1.0)))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit + 64 * i)
    interleave_half(source + FILE.m, stride, n, unit + 64 * i + 32)
    interleave(source + FILE.qs, stride, n, unit + QS + 256 * i)


@device
def decode(p):
    """Eight file blocks as a file unit."""
    return nibbles_of_blocks(p + FILE.qs, FILE.size), scales_and_minimums(p + FILE.d, FILE.size)


direct = make_direct(8 * FILE.size, decode, add_with_minimum)
linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 2, pack_block, direct)
