"""Q4_0 and Q4_1: blocks of 32 weights in 4 bits with one scale, without and with a minimum."""

from __future__ import annotations

import numpy as np

from ggpy.arrays import Float32
from ggpy.formats.base import (
    Blocks,
    Integers,
    f16_to_f32,
    make_integers,
    pack,
    quantised,
    reciprocal,
    unpack,
)
from ggpy.gguf.types import TensorType

Q4_0_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("qs", "u1", 16),       # byte i: q of weight i in the low half, of weight 16 + i in the high half
])
Q4_1_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("m", "<f2"),           # minimum: the weight of q = 0
    ("qs", "u1", 16),       # as in Q4_0
])


def q4_0_integers(blocks: Blocks) -> Integers:
    """w = d * (q - 8)."""
    q = unpack(blocks["qs"], bits=4, run=16).view(np.int8)
    q -= 8
    return make_integers(q, f16_to_f32(blocks["d"]))


def q4_1_integers(blocks: Blocks) -> Integers:
    """w = d * q + m."""
    q = unpack(blocks["qs"], bits=4, run=16).view(np.int8)
    return make_integers(q, f16_to_f32(blocks["d"]), dm=-f16_to_f32(blocks["m"]))


def q4_0_quantize(x: Float32) -> Blocks:
    """The weight of largest magnitude becomes q = 0, that is -8: its sign gains the ninth step."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)
    d = extreme / np.float32(-8)
    with np.errstate(invalid="ignore"):
        q = (x * reciprocal(d) + np.float32(8.5)).astype(np.uint8)
    blocks = np.empty(x.shape[:-1], Q4_0_BLOCK)
    blocks["d"] = d[..., 0]
    blocks["qs"] = pack(np.minimum(q, 15), bits=4, run=16)
    return blocks


def q4_1_quantize(x: Float32) -> Blocks:
    """The smallest weight becomes q = 0, the largest q = 15."""
    low = x.min(axis=-1, keepdims=True)
    d = (x.max(axis=-1, keepdims=True) - low) / np.float32(15)
    with np.errstate(invalid="ignore"):
        q = ((x - low) * reciprocal(d) + np.float32(0.5)).astype(np.uint8)
    blocks = np.empty(x.shape[:-1], Q4_1_BLOCK)
    blocks["d"], blocks["m"] = d[..., 0], low[..., 0]
    blocks["qs"] = pack(np.minimum(q, 15), bits=4, run=16)
    return blocks


Q4_0 = quantised(TensorType.Q4_0, Q4_0_BLOCK, 32, q4_0_integers, q4_0_quantize)
Q4_1 = quantised(TensorType.Q4_1, Q4_1_BLOCK, 32, q4_1_integers, q4_1_quantize)
