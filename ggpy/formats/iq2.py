"""IQ2_XXS, IQ2_XS, IQ2_S: 256 weights, eight at a time a point of a grid of magnitudes 8, 25, 43 with eight signs."""

from __future__ import annotations

import numpy as np

from ggpy.formats.base import Blocks, Integers, f16_to_f32, make_integers, quantised, unpack
from ggpy.formats.iq_grids import EVEN_SIGNS, IQ2_S_GRID, IQ2_XS_GRID, IQ2_XXS_GRID, grid_points
from ggpy.gguf.types import TensorType

IQ2_XXS_BLOCK = np.dtype([
    ("d", "<f2"),                # 8 times the scale of the scales
    ("qs", [                     # one for each 32 weights:
        ("index", "u1", 4),      # grid points of 8 weights each
        ("signs", "<u4"),        # 4 x 7 bits of signs (see EVEN_SIGNS), then 4 bits s: scale = 2 s + 1
    ], 8),
])
IQ2_XS_BLOCK = np.dtype([
    ("d", "<f2"),                # 8 times the scale of the scales
    ("qs", "<u2", 32),           # per 8 weights: grid point in the low 9 bits, 7 bits of signs above
    ("scales", "u1", 8),         # per 16 weights 4 bits s, low half first: scale = 2 s + 1
])
IQ2_S_BLOCK = np.dtype([
    ("d", "<f2"),                # 8 times the scale of the scales
    ("qs", "u1", 32),            # low 8 bits of the grid point of 8 weights
    ("signs", "u1", 32),         # signs of 8 weights, all eight of them, lowest bit first
    ("qh", "u1", 8),             # high 2 bits of four grid points each, lowest bits first
    ("scales", "u1", 8),         # as in IQ2_XS
])
EIGHTH = np.float32(0.125)


def iq2_xxs_integers(blocks: Blocks) -> Integers:
    """w = d/8 * scale * q, scale = 1, 3..31 per 32 weights."""
    index, signs = blocks["qs"]["index"], blocks["qs"]["signs"]
    masks = EVEN_SIGNS[signs[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127]
    flat = (*blocks.shape, 32)
    q = grid_points(IQ2_XXS_GRID, index.reshape(flat), masks.reshape(flat))
    return make_integers(q, f16_to_f32(blocks["d"]) * EIGHTH, (signs >> 28).astype(np.int32) * 2 + 1)


def iq2_xs_integers(blocks: Blocks) -> Integers:
    """w = d/8 * scale * q, scale = 1, 3..31 per 16 weights."""
    qs = blocks["qs"]
    q = grid_points(IQ2_XS_GRID, qs & 511, EVEN_SIGNS[qs >> 9])
    scale = unpack(blocks["scales"], bits=4, run=1).astype(np.int32) * 2 + 1
    return make_integers(q, f16_to_f32(blocks["d"]) * EIGHTH, scale)


def iq2_s_integers(blocks: Blocks) -> Integers:
    """w = d/8 * scale * q, scale = 1, 3..31 per 16 weights."""
    index = unpack(blocks["qh"], bits=2, run=1).astype(np.uint16) << 8 | blocks["qs"]
    q = grid_points(IQ2_S_GRID, index, blocks["signs"])
    scale = unpack(blocks["scales"], bits=4, run=1).astype(np.int32) * 2 + 1
    return make_integers(q, f16_to_f32(blocks["d"]) * EIGHTH, scale)


IQ2_XXS = quantised(TensorType.IQ2_XXS, IQ2_XXS_BLOCK, 256, iq2_xxs_integers)
IQ2_XS = quantised(TensorType.IQ2_XS, IQ2_XS_BLOCK, 256, iq2_xs_integers)
IQ2_S = quantised(TensorType.IQ2_S, IQ2_S_BLOCK, 256, iq2_s_integers)
