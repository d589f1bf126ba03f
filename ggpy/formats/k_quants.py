"""Q2_K to Q6_K: super-blocks of 256 weights; runs of 16 or 32 have small integer scales under one f16 scale."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpy.formats.base import Blocks, Integers, f16_to_f32, make_integers, quantised, unpack
from ggpy.gguf.types import TensorType

Q2_K_BLOCK = np.dtype([
    ("scales", "u1", 16),   # per 16 weights: scale in the low half, minimum in the high half
    ("qs", "u1", 64),       # 2 bits each; byte 32 i + j: weights 128 i + j, + 32, + 64, + 96 from the lowest bits up
    ("d", "<f2"),           # scale of the scales
    ("dmin", "<f2"),        # scale of the minimums
])
Q3_K_BLOCK = np.dtype([
    ("hmask", "u1", 32),    # bit i of byte j: third bit of weight 32 i + j
    ("qs", "u1", 64),       # low 2 bits, as in Q2_K
    ("scales", "u1", 12),   # 16 scales of 6 bits: see _q3_k_scales
    ("d", "<f2"),           # scale of the scales
])
Q4_K_BLOCK = np.dtype([
    ("d", "<f2"),           # scale of the scales
    ("dmin", "<f2"),        # scale of the minimums
    ("scales", "u1", 12),   # 8 scales and 8 minimums of 6 bits: see k_scales
    ("qs", "u1", 128),      # byte 32 i + j: weight 64 i + j in the low half, weight 64 i + 32 + j in the high half
])
Q5_K_BLOCK = np.dtype([
    ("d", "<f2"),           # scale of the scales
    ("dmin", "<f2"),        # scale of the minimums
    ("scales", "u1", 12),   # as in Q4_K
    ("qh", "u1", 32),       # bit i of byte j: fifth bit of weight 32 i + j
    ("qs", "u1", 128),      # low four bits, as in Q4_K
])
Q6_K_BLOCK = np.dtype([
    ("ql", "u1", 128),      # low 4 bits; byte 64 i + j: weight 128 i + j in the low half, + 64 in the high half
    ("qh", "u1", 64),       # high 2 bits; byte 32 i + j: weights 128 i + j, + 32, + 64, + 96 from the lowest bits up
    ("scales", "i1", 16),   # per 16 weights
    ("d", "<f2"),           # scale of the scales
])


def k_scales(packed: NDArray[np.uint8]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The 8 scales and 8 minimums (..., 8), 6 bits each, of Q4_K and Q5_K from their 12 bytes (..., 12).

    Bytes 0..3 hold scales 0..3 and bytes 4..7 minimums 0..3 in their low 6 bits; byte 8 + j holds the low 4 bits of
    scale 4 + j and of minimum 4 + j, whose top 2 bits are the spare top bits of bytes j and 4 + j.
    """
    low, high, both = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([low & 63, both & 15 | low >> 6 << 4], axis=-1)
    minimums = np.concatenate([high & 63, both >> 4 | high >> 6 << 4], axis=-1)
    return scales.astype(np.int32), minimums.astype(np.int32)


def _q3_k_scales(packed: NDArray[np.uint8]) -> NDArray[np.int32]:
    """The 16 scales of Q3_K (..., 16), -32..31, from their 12 bytes (..., 12).

    Bytes 0..7 hold the low 4 bits (scale j low half, scale 8 + j high half), bytes 8..11 the high 2 bits of scales
    j, 4 + j, 8 + j, 12 + j from the lowest bits up.
    """
    scales = unpack(packed[..., :8], bits=4, run=8) | unpack(packed[..., 8:], bits=2, run=4) << 4
    return scales.astype(np.int32) - 32


def q2_k_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q - dmin * min, q = 0..3, scale and min = 0..15 per 16 weights."""
    q = unpack(blocks["qs"], bits=2, run=32).view(np.int8)
    scale, minimum = blocks["scales"] & 15, blocks["scales"] >> 4
    return make_integers(q, f16_to_f32(blocks["d"]), scale.astype(np.int32),
                         f16_to_f32(blocks["dmin"]), minimum.astype(np.int32))


def q3_k_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q, q = -4..3, scale = -32..31 per 16 weights."""
    q = unpack(blocks["hmask"], bits=1, run=32)
    q <<= 2
    q |= unpack(blocks["qs"], bits=2, run=32)
    signed = q.view(np.int8)
    signed -= 4
    return make_integers(signed, f16_to_f32(blocks["d"]), _q3_k_scales(blocks["scales"]))


def q4_k_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q - dmin * min, q = 0..15, scale and min = 0..63 per 32 weights."""
    q = unpack(blocks["qs"], bits=4, run=32).view(np.int8)
    scale, minimum = k_scales(blocks["scales"])
    return make_integers(q, f16_to_f32(blocks["d"]), scale, f16_to_f32(blocks["dmin"]), minimum)


def q5_k_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q - dmin * min, q = 0..31, scale and min = 0..63 per 32 weights."""
    q = unpack(blocks["qh"], bits=1, run=32)
    q <<= 4
    q |= unpack(blocks["qs"], bits=4, run=32)
    scale, minimum = k_scales(blocks["scales"])
    return make_integers(q.view(np.int8), f16_to_f32(blocks["d"]), scale, f16_to_f32(blocks["dmin"]), minimum)


def q6_k_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q, q = -32..31, scale = -128..127 per 16 weights."""
    q = unpack(blocks["qh"], bits=2, run=32)
    q <<= 4
    q |= unpack(blocks["ql"], bits=4, run=64)
    signed = q.view(np.int8)
    signed -= 32
    return make_integers(signed, f16_to_f32(blocks["d"]), blocks["scales"].astype(np.int32))


Q2_K = quantised(TensorType.Q2_K, Q2_K_BLOCK, 256, q2_k_integers)
Q3_K = quantised(TensorType.Q3_K, Q3_K_BLOCK, 256, q3_k_integers)
Q4_K = quantised(TensorType.Q4_K, Q4_K_BLOCK, 256, q4_k_integers)
Q5_K = quantised(TensorType.Q5_K, Q5_K_BLOCK, 256, q5_k_integers)
Q6_K = quantised(TensorType.Q6_K, Q6_K_BLOCK, 256, q6_k_integers)
