"""IQ3_XXS and IQ3_S: 256 weights, four at a time a point of a grid of eight magnitudes, with signs."""

from __future__ import annotations

import numpy as np

from ggpy.formats.base import Blocks, Integers, f16_to_f32, make_integers, quantised, unpack
from ggpy.formats.iq_grids import EVEN_SIGNS, IQ3_S_GRID, IQ3_XXS_GRID, grid_points
from ggpy.gguf.types import TensorType

IQ3_XXS_BLOCK = np.dtype([
    ("d", "<f2"),           # 4 times the scale of the scales
    ("qs", "u1", 64),       # grid points of 4 weights each
    ("signs", "<u4", 8),    # per 32 weights: 4 x 7 bits of signs (see EVEN_SIGNS), then 4 bits s: scale = 2 s + 1
])
IQ3_S_BLOCK = np.dtype([
    ("d", "<f2"),           # scale of the scales
    ("qs", "u1", 64),       # low 8 bits of the grid point of 4 weights
    ("qh", "u1", 8),        # ninth bit of eight grid points each, lowest first
    ("signs", "u1", 32),    # signs of 8 weights, lowest bit first
    ("scales", "u1", 4),    # per 32 weights 4 bits s, low half first: scale = 2 s + 1
])


def iq3_xxs_integers(blocks: Blocks) -> Integers:
    """w = d/4 * scale * q, |q| = 4, 12..44, 52, 62, scale = 1, 3..31 per 32 weights."""
    signs = blocks["signs"]
    masks = EVEN_SIGNS[signs[..., None] >> np.arange(0, 28, 7, dtype=np.uint32) & 127]
    q = grid_points(IQ3_XXS_GRID, blocks["qs"], masks.reshape(*blocks.shape, 32))
    return make_integers(q, f16_to_f32(blocks["d"]) * np.float32(0.25), (signs >> 28).astype(np.int32) * 2 + 1)


def iq3_s_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q, |q| = 1, 3..15, scale = 1, 3..31 per 32 weights."""
    index = unpack(blocks["qh"], bits=1, run=1).astype(np.uint16) << 8 | blocks["qs"]
    q = grid_points(IQ3_S_GRID, index, blocks["signs"])
    scale = unpack(blocks["scales"], bits=4, run=1).astype(np.int32) * 2 + 1
    return make_integers(q, f16_to_f32(blocks["d"]), scale)


IQ3_XXS = quantised(TensorType.IQ3_XXS, IQ3_XXS_BLOCK, 256, iq3_xxs_integers)
IQ3_S = quantised(TensorType.IQ3_S, IQ3_S_BLOCK, 256, iq3_s_integers)
