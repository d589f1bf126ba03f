"""IQ4_NL: w = d * VALUES[q] with 16 uneven values, -127..113, d per 32 weights.

Packed unit of two blocks, 576 bytes: d of both (16 float16 each), then four lines of nibbles for each (see `nibbles`).
"""

from ggpy.formats.iq4 import IQ4_NL_BLOCK, IQ4_VALUES
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import for_each, make_add_pair, nibbles, prefetch_lines, ready_product, scaled
from ggpy.kernels.cpu.dot import lookup16, ready_i8
from ggpy.kernels.cpu.interleave import file_block, interleave, interleave_half
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import constant, load_f16x16
from ggpy.kernels.cpu.vectors import i8x64

FILE = file_block(IQ4_NL_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.IQ4_NL].unit_bytes
QS = 64
values = constant(i8x64, IQ4_VALUES.tolist() * 4)


@device
def value(i):
    """The values numbered i, ready for dot4_i8."""
    return lookup16(ready_i8(values()), i)


lookups = for_each(value)
add_pair = make_add_pair(ready_product, scaled)


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc."""
    for j in range(0, n_blocks, 2):
        p = w + j // 2 * UNIT_BYTES
        prefetch_lines(p, 9)
        add_pair(j, n_blocks, m, q, da, ys, n16, acc, lookups(nibbles(p + QS)), lookups(nibbles(p + QS + 256)),
                 (load_f16x16(p),), (load_f16x16(p + 32),))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit + 32 * i)
    interleave(source + FILE.qs, stride, n, unit + QS + 256 * i)


linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 2, pack_block)
