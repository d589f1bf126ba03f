"""IQ1_S and IQ1_M: 256 weights, eight at a time a point of a grid of -1, 0, 1, all eight shifted by +1/8 or -1/8."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpy.formats.base import Blocks, Integers, f16_to_f32, make_integers, quantised, unpack
from ggpy.formats.iq_grids import IQ1_GRID
from ggpy.gguf.types import TensorType

IQ1_S_BLOCK = np.dtype([
    ("d", "<f2"),           # scale of the scales
    ("qs", "u1", 32),       # low 8 bits of the grid point of 8 weights
    ("qh", "<u2", 8),       # per 32 weights: 4 x 3 high bits of a point, 3 bits s: scale = 2 s + 1, sign of the shift
])
IQ1_M_BLOCK = np.dtype([
    ("qs", "u1", 32),       # low 8 bits of the grid point of 8 weights
    ("qh", "u1", 16),       # per 8 weights, low half first: the high 3 bits of the point, then the sign of the shift
    ("scales", "<u2", 4),   # four times 3 bits s per 16 weights: scale = 2 s + 1; the top 4 bits are a quarter of d's
])


def _shifted(index: NDArray[Any], negative: NDArray[Any]) -> NDArray[np.int8]:
    """8 * point + 1, or - 1 where `negative`: (..., n / 8) of each to (..., n)."""
    q = np.take(IQ1_GRID, index, axis=0)
    q *= 8
    q += np.where(negative, np.int8(-1), np.int8(1))[..., None]
    return q.reshape(*index.shape[:-1], -1)


def iq1_s_integers(blocks: Blocks) -> Integers:
    """w = d/8 * scale * q, q = 8 * (-1, 0, 1) +- 1, scale = 1, 3..15 per 32 weights."""
    qh = blocks["qh"]
    high = qh[..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
    index = high.reshape(*blocks.shape, 32) << 8 | blocks["qs"]
    q = _shifted(index, np.repeat(qh >> 15, 4, axis=-1))
    scale = (qh >> 12 & 7).astype(np.int32) * 2 + 1
    return make_integers(q, f16_to_f32(blocks["d"]) * np.float32(0.125), scale)


def iq1_m_scale(blocks: Blocks) -> NDArray[np.float16]:
    """The f16 `d` of IQ1_M blocks, whose four quarters are the top bits of `scales`, lowest quarter first."""
    quarters = blocks["scales"] >> 12 << np.arange(0, 16, 4, dtype=np.uint16)
    bits: NDArray[np.uint16] = np.bitwise_or.reduce(quarters, axis=-1)
    return bits.view(np.float16)


def iq1_m_integers(blocks: Blocks) -> Integers:
    """w = d/8 * scale * q, q = 8 * (-1, 0, 1) +- 1, scale = 1, 3..15 per 16 weights."""
    qh = unpack(blocks["qh"], bits=4, run=1)
    q = _shifted((qh & 7).astype(np.uint16) << 8 | blocks["qs"], qh >> 3)
    scale = blocks["scales"][..., None] >> np.arange(0, 12, 3, dtype=np.uint16) & 7
    scale = scale.reshape(*blocks.shape, 16).astype(np.int32) * 2 + 1
    return make_integers(q, f16_to_f32(iq1_m_scale(blocks)) * np.float32(0.125), scale)


IQ1_S = quantised(TensorType.IQ1_S, IQ1_S_BLOCK, 256, iq1_s_integers)
IQ1_M = quantised(TensorType.IQ1_M, IQ1_M_BLOCK, 256, iq1_m_integers)
