"""MXFP4 and NVFP4: 4-bit floats (E2M1: one sign, two exponent and one mantissa bit) under small floating scales.

Source: OCP Microscaling Formats (MX) v1.0; NVFP4 differs in the scale, which is an unsigned E4M3 for each 16 weights.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.formats.base import Blocks, Integers, make_integers, pack, quantised, unpack
from ggpy.gguf.types import TensorType

# twice the value of each E2M1 code, so that all are integers; minus zero is not told apart
E2M1_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)

MXFP4_BLOCK = np.dtype([
    ("e", "u1"),            # scale 2**(e - 127)
    ("qs", "u1", 16),       # byte i: weight i in the low half, weight 16 + i in the high half
])
NVFP4_BLOCK = np.dtype([
    ("d", "u1", 4),         # scale of 16 weights, unsigned E4M3
    ("qs", "u1", 32),       # byte 8 i + j: weight 16 i + j in the low half, weight 16 i + 8 + j in the high half
])


def _ue4m3_integers() -> NDArray[np.int32]:
    """Every unsigned E4M3 code (256,) times 2**9: (8 + mantissa) * 2**(exponent - 1), or the mantissa at exponent 0.

    Code 0x7F, the only NaN of E4M3, counts as 0, as in llama.cpp; the top bit is not looked at elsewhere.
    """
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, mantissa, 8 + mantissa << np.maximum(exponent, 1) - 1)
    values[0x7F] = 0
    return values.astype(np.int32)


UE4M3_TIMES_512 = _ue4m3_integers()


def half_power(e: NDArray[np.uint8]) -> Float32:
    """2**(e - 127) / 2: the scale for doubled E2M1 values; exact, the two smallest as subnormals."""
    return np.ldexp(np.float32(1), e.astype(np.int32) - 128)


def mxfp4_integers(blocks: Blocks) -> Integers:
    """w = d * q, d = 2**(e - 127) / 2, q = E2M1_DOUBLED."""
    q = E2M1_DOUBLED[unpack(blocks["qs"], bits=4, run=16)]
    return make_integers(q, half_power(blocks["e"])[..., None])


def nvfp4_integers(blocks: Blocks) -> Integers:
    """w = d * scale * q, d = 2**-10 always, scale = UE4M3_TIMES_512 (0..245760) per 16 weights, q = E2M1_DOUBLED."""
    q = E2M1_DOUBLED[unpack(blocks["qs"], bits=4, run=8)]
    d = np.full((*blocks.shape, 1), 2.0**-10, np.float32)
    return make_integers(q, d, UE4M3_TIMES_512[blocks["d"]])


def mxfp4_quantize(x: Float32) -> Blocks:
    """The scale puts the largest magnitude in 4..8 (it may be cut to 6); every weight takes the nearest code."""
    largest = np.abs(x).max(axis=-1)
    e = np.zeros(largest.shape, np.uint8)
    used = largest > 0
    e[used] = np.maximum(np.floor(np.log2(largest[used])) + 125, 0)
    codes = half_power(e)[..., None, None] * E2M1_DOUBLED.astype(np.float32)
    q = np.abs(codes - x[..., None]).argmin(axis=-1).astype(np.uint8)      # the first of equally near codes
    blocks = np.empty(x.shape[:-1], MXFP4_BLOCK)
    blocks["e"] = e
    blocks["qs"] = pack(q, bits=4, run=16)
    return blocks


MXFP4 = quantised(TensorType.MXFP4, MXFP4_BLOCK, 32, mxfp4_integers, mxfp4_quantize)
NVFP4 = quantised(TensorType.NVFP4, NVFP4_BLOCK, 64, nvfp4_integers)
