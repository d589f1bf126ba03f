"""TQ1_0, TQ2_0 (-1, 0, 1) and Q1_0 (-1, 1): one scale for a whole block."""

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
    round_half_away,
    unpack,
)
from ggpy.gguf.types import TensorType

TQ1_0_BLOCK = np.dtype([
    ("qs", "u1", 48),       # five ternary digits a byte: bytes 0..31 hold weights 0..159, bytes 32..47 weights 160..239
    ("qh", "u1", 4),        # four ternary digits a byte: weights 240..255
    ("d", "<f2"),           # scale
])
TQ2_0_BLOCK = np.dtype([
    ("qs", "u1", 64),       # 2 bits each; byte 32 i + j: weights 128 i + j, + 32, + 64, + 96 from the lowest bits up
    ("d", "<f2"),           # scale
])
Q1_0_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("qs", "u1", 16),       # bit i of these 128: 1 for +d, 0 for -d
])


def _digits(packed: NDArray[np.uint8], n: int) -> NDArray[np.uint8]:
    """The first `n` ternary digits 0..2 of bytes (..., m), as (..., n * m): the first digit of all bytes, and so on.

    A byte is the fraction 0.abcde in base 3, times 256 and rounded up. So a digit is what passes 256 when the byte is
    tripled, and the next one is found in what stays.
    """
    shifted = packed[..., None, :] * np.array([1, 3, 9, 27, 81][:n], np.uint8)[:, None]     # modulo 256
    digits = (shifted.astype(np.uint16) * 3 >> 8).astype(np.uint8)
    return digits.reshape(*packed.shape[:-1], -1)


def _pack_digits(digits: NDArray[np.uint8], n: int, run: int) -> NDArray[np.uint8]:
    """Bytes (..., run) of ternary digits (..., n * run): the inverse of `_digits`."""
    groups = digits.reshape(*digits.shape[:-1], n, run).astype(np.uint16)
    groups *= np.array([81, 27, 9, 3, 1][:n], np.uint16)[:, None]
    value: NDArray[np.uint16] = groups.sum(axis=-2, dtype=np.uint16)
    return ((value * np.uint16(256) + 242) // 243).astype(np.uint8)


def tq1_0_integers(blocks: Blocks) -> Integers:
    """w = d * (q - 1), q = 0..2."""
    qs = blocks["qs"]
    parts = [_digits(qs[..., :32], 5), _digits(qs[..., 32:], 5), _digits(blocks["qh"], 4)]
    q = np.concatenate(parts, axis=-1).view(np.int8)
    q -= 1
    return make_integers(q, f16_to_f32(blocks["d"]))


def tq2_0_integers(blocks: Blocks) -> Integers:
    """w = d * (q - 1), q = 0..3, of which quantisers use 0..2."""
    q = unpack(blocks["qs"], bits=2, run=32).view(np.int8)
    q -= 1
    return make_integers(q, f16_to_f32(blocks["d"]))


def q1_0_integers(blocks: Blocks) -> Integers:
    """w = d * (2 bit - 1)."""
    q = unpack(blocks["qs"], bits=1, run=1).view(np.int8)
    q *= 2
    q -= 1
    return make_integers(q, f16_to_f32(blocks["d"]))


def _ternary(x: Float32) -> tuple[Float32, NDArray[np.uint8]]:
    """The largest magnitude (..., 1) of blocks of weights, and x over it rounded to 0, 1, 2 for -1, 0, 1."""
    d = np.abs(x).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return d, (round_half_away(x * reciprocal(d)) + 1).astype(np.uint8)


def tq1_0_quantize(x: Float32) -> Blocks:
    """The largest magnitude becomes 1; halves round away from zero."""
    d, q = _ternary(x)
    blocks = np.empty(x.shape[:-1], TQ1_0_BLOCK)
    blocks["d"] = d[..., 0]
    blocks["qs"][..., :32] = _pack_digits(q[..., :160], 5, 32)
    blocks["qs"][..., 32:] = _pack_digits(q[..., 160:240], 5, 16)
    blocks["qh"] = _pack_digits(q[..., 240:], 4, 4)
    return blocks


def tq2_0_quantize(x: Float32) -> Blocks:
    """The largest magnitude becomes 1; halves round away from zero."""
    d, q = _ternary(x)
    blocks = np.empty(x.shape[:-1], TQ2_0_BLOCK)
    blocks["d"] = d[..., 0]
    blocks["qs"] = pack(q, bits=2, run=32)
    return blocks


TQ1_0 = quantised(TensorType.TQ1_0, TQ1_0_BLOCK, 256, tq1_0_integers, tq1_0_quantize)
TQ2_0 = quantised(TensorType.TQ2_0, TQ2_0_BLOCK, 256, tq2_0_integers, tq2_0_quantize)
Q1_0 = quantised(TensorType.Q1_0, Q1_0_BLOCK, 128, q1_0_integers)
