"""Q8_0: w = d * q with q in -128..127, d per 32 weights.

Packed unit of two blocks, 1088 bytes: d of both (16 float16 each), then eight lines of weights for each.
"""

from ggpy.formats.q8 import Q8_0_BLOCK
from ggpy.kernels.cpu.blocks import add_pair_i8, for_each, load_8_lines, prefetch_lines
from ggpy.kernels.cpu.dot import ready_i8
from ggpy.kernels.cpu.interleave import file_block, interleave_bytes, interleave_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.simd import load_f16x16

FILE = file_block(Q8_0_BLOCK)
UNIT_BYTES = 1088
QS = 64
ready = for_each(ready_i8)


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * UNIT_BYTES
        prefetch_lines(p, 17)
        add_pair_i8(j, m, q, da, n16, acc, ready(load_8_lines(p + QS)),
                    ready(load_8_lines(p + QS + 512)), load_f16x16(p), load_f16x16(p + 32))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit + 32 * i)
    interleave_bytes(source + FILE.qs, 32, stride, n, unit + QS + 512 * i)


linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 2, pack_block)
