"""Q5_0 and Q5_1: blocks of 32 weights in 5 bits with one scale, without and with a minimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

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

Q5_0_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("qh", "u1", 4),        # bit i of these 32: the fifth bit of weight i
    ("qs", "u1", 16),       # byte i: low four bits of weight i in the low half, of weight 16 + i in the high half
])
Q5_1_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("m", "<f2"),           # minimum: the weight of q = 0
    ("qh", "u1", 4),        # as in Q5_0
    ("qs", "u1", 16),       # as in Q5_0
])


def _unpack_q(blocks: Blocks) -> NDArray[np.int8]:
    """q = 0..31 of each weight, (..., 32)."""
    q = unpack(blocks["qh"], bits=1, run=1)
    q <<= 4
    q |= unpack(blocks["qs"], bits=4, run=16)
    return q.view(np.int8)


def _pack_q(q: NDArray[np.uint8], blocks: Blocks) -> None:
    """Write q = 0..31 (..., 32) into `qh` and `qs` of `blocks`."""
    blocks["qh"] = pack(q >> np.uint8(4), bits=1, run=1)
    blocks["qs"] = pack(q & np.uint8(15), bits=4, run=16)


def q5_0_integers(blocks: Blocks) -> Integers:
    """w = d * (q - 16)."""
    q = _unpack_q(blocks)
    q -= 16
    return make_integers(q, f16_to_f32(blocks["d"]))


def q5_1_integers(blocks: Blocks) -> Integers:
    """w = d * q + m."""
    return make_integers(_unpack_q(blocks), f16_to_f32(blocks["d"]), dm=-f16_to_f32(blocks["m"]))


def q5_0_quantize(x: Float32) -> Blocks:
    """The weight of largest magnitude becomes q = 0, that is -16."""
    extreme = np.take_along_axis(x, np.abs(x).argmax(axis=-1, keepdims=True), axis=-1)
    d = extreme / np.float32(-16)
    with np.errstate(invalid="ignore"):
        q = (x * reciprocal(d) + np.float32(16.5)).astype(np.uint8)
    blocks = np.empty(x.shape[:-1], Q5_0_BLOCK)
    blocks["d"] = d[..., 0]
    _pack_q(np.minimum(q, 31), blocks)
    return blocks


def q5_1_quantize(x: Float32) -> Blocks:
    """The smallest weight becomes q = 0, the largest q = 31."""
    low = x.min(axis=-1, keepdims=True)
    d = (x.max(axis=-1, keepdims=True) - low) / np.float32(31)
    with np.errstate(invalid="ignore"):
        q = ((x - low) * reciprocal(d) + np.float32(0.5)).astype(np.uint8)
    blocks = np.empty(x.shape[:-1], Q5_1_BLOCK)
    blocks["d"], blocks["m"] = d[..., 0], low[..., 0]
    _pack_q(np.minimum(q, 31), blocks)
    return blocks


Q5_0 = quantised(TensorType.Q5_0, Q5_0_BLOCK, 32, q5_0_integers, q5_0_quantize)
Q5_1 = quantised(TensorType.Q5_1, Q5_1_BLOCK, 32, q5_1_integers, q5_1_quantize)
