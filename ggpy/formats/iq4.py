"""IQ4_NL and IQ4_XS: 4 bits per weight that choose from 16 unevenly spaced integers."""

from __future__ import annotations

import numpy as np

from ggpy.formats.base import Blocks, Integers, f16_to_f32, make_integers, quantised, unpack
from ggpy.gguf.types import TensorType

IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)

IQ4_NL_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("qs", "u1", 16),       # byte i: weight i in the low half, weight 16 + i in the high half
])
IQ4_XS_BLOCK = np.dtype([
    ("d", "<f2"),           # scale of the scales
    ("scales_h", "u1", 2),  # high 2 bits of the 8 scales, lowest bits first
    ("scales_l", "u1", 4),  # low 4 bits of the 8 scales, low half first
    ("qs", "u1", 128),      # byte 16 i + j: weight 32 i + j in the low half, weight 32 i + 16 + j in the high half
])


def iq4_nl_integers(blocks: Blocks) -> Integers:
    """w = d * IQ4_VALUES[q]."""
    return make_integers(IQ4_VALUES[unpack(blocks["qs"], bits=4, run=16)], f16_to_f32(blocks["d"]))


def iq4_xs_integers(blocks: Blocks) -> Integers:
    """w = d * scale * IQ4_VALUES[q], scale = -32..31 per 32 weights."""
    scale = unpack(blocks["scales_l"], bits=4, run=1) | unpack(blocks["scales_h"], bits=2, run=1) << 4
    return make_integers(IQ4_VALUES[unpack(blocks["qs"], bits=4, run=16)], f16_to_f32(blocks["d"]),
                         scale.astype(np.int32) - 32)


IQ4_NL = quantised(TensorType.IQ4_NL, IQ4_NL_BLOCK, 32, iq4_nl_integers)
IQ4_XS = quantised(TensorType.IQ4_XS, IQ4_XS_BLOCK, 256, iq4_xs_integers)
