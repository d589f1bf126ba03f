"""IQ4_XS: w = d * scale * VALUES[q] with IQ4_NL's values, scale in -32..31 per 32 weights, d per 256.

Packed unit of eight blocks, 2176 bytes: d (16 float16), high bits of the scales (16 times 16 bits), a line of low bits,
then four lines of nibbles for each block as in iq4_nl.py.
"""

from ggpy.formats.iq4 import IQ4_XS_BLOCK
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.blocks import nibbles, prefetch_lines
from ggpy.kernels.cpu.interleave import (
    file_block,
    interleave_bytes,
    interleave_half,
    interleave_word,
)
from ggpy.kernels.cpu.iq4_nl import add_pair, lookups
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.packed_format import make_kernels
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.simd import load_f16x16, load_i16x16, load_i32x16, splat_i32x16, to_f32, zext_i32

FILE = file_block(IQ4_XS_BLOCK)
UNIT_BYTES = PACKINGS[TensorType.IQ4_XS].unit_bytes
HIGH, LOW, QS = 32, 64, 128


@device
def scale(p, j):
    """The scales of block j of 8 as float32, from the unit at p."""
    low = (load_i32x16(p + LOW) >> (4 * j)) & splat_i32x16(15)
    high = (zext_i32(load_i16x16(p + HIGH)) >> (2 * j)) & splat_i32x16(3)
    return to_f32((low | (high << 4)) - splat_i32x16(32))


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group times m activation rows to acc; d * scale is exact, so S meets it at once."""
    for u in range(n_blocks // 8):
        p = w + u * UNIT_BYTES
        d = load_f16x16(p)
        for j in range(0, 8, 2):
            lines = p + QS + 256 * j
            prefetch_lines(p + 288 * j, 9)
            add_pair(8 * u + j, n_blocks, m, q, da, ys, n16, acc,
                     lookups(nibbles(lines)), lookups(nibbles(lines + 256)),
                     (d * scale(p, j),), (d * scale(p, j + 1),))


@device
def pack_block(source, stride, n, unit, i):
    interleave_half(source + FILE.d, stride, n, unit)
    interleave_half(source + FILE.scales_h, stride, n, unit + HIGH)
    interleave_word(source + FILE.scales_l, stride, n, unit + LOW)
    interleave_bytes(source + FILE.qs, 128, stride, n, unit + QS)


linear, expert_linear, pack, mapped_linear = make_kernels(rows, FILE.size, UNIT_BYTES, 1, pack_block)
