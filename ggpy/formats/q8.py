"""Q8_0: blocks of 32 weights in 8 bits with one scale. Q8_1 and Q8_K: llama.cpp's 8-bit activations."""

from __future__ import annotations

import numpy as np

from ggpy.arrays import Float32
from ggpy.formats.base import (
    Blocks,
    Integers,
    f16_to_f32,
    make_integers,
    quantised,
    reciprocal,
    round_half_away,
)
from ggpy.gguf.types import TensorType

Q8_0_BLOCK = np.dtype([
    ("d", "<f2"),           # scale
    ("qs", "i1", 32),
])
Q8_1_BLOCK = np.dtype([     # as gguf-py sizes it; llama.cpp's block in memory has f16 d and s. No model is stored in it
    ("d", "<f4"),           # scale
    ("s", "<f4"),           # d * sum(qs), redundant
    ("qs", "i1", 32),
])
Q8_K_BLOCK = np.dtype([
    ("d", "<f4"),           # scale
    ("qs", "i1", 256),
    ("bsums", "<i2", 16),   # sums of 16 q each, redundant
])


def q8_0_integers(blocks: Blocks) -> Integers:
    """w = d * q."""
    return make_integers(blocks["qs"], f16_to_f32(blocks["d"]))


def q8_f32_integers(blocks: Blocks) -> Integers:
    """w = d * q with a float32 d: here d * q rounds, which no format of stored weights does."""
    return make_integers(blocks["qs"], blocks["d"][..., None])


def q8_0_quantize(x: Float32) -> Blocks:
    """The largest magnitude becomes 127; halves round away from zero."""
    d = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    blocks = np.empty(x.shape[:-1], Q8_0_BLOCK)
    blocks["d"] = d[..., 0]
    with np.errstate(invalid="ignore"):
        blocks["qs"] = round_half_away(x * reciprocal(d)).astype(np.int8)
    return blocks


Q8_0 = quantised(TensorType.Q8_0, Q8_0_BLOCK, 32, q8_0_integers, q8_0_quantize)
Q8_1 = quantised(TensorType.Q8_1, Q8_1_BLOCK, 32, q8_f32_integers)
Q8_K = quantised(TensorType.Q8_K, Q8_K_BLOCK, 256, q8_f32_integers)
