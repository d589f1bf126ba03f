"""The table of formats, and whole rows of bytes through it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.errors import GgpyError, UnsupportedModelError
from ggpy.formats import floats, fp4, iq1, iq2, iq3, iq4, k_quants, q4, q5, q8, ternary
from ggpy.formats.base import Blocks, Format, Integers
from ggpy.gguf.types import TensorType

FORMATS: dict[TensorType, Format] = {
    f.type: f
    for f in (
        floats.F32, floats.F16, floats.BF16, floats.F64, floats.I8, floats.I16, floats.I32, floats.I64,
        q4.Q4_0, q4.Q4_1, q5.Q5_0, q5.Q5_1, q8.Q8_0, q8.Q8_1, q8.Q8_K,
        k_quants.Q2_K, k_quants.Q3_K, k_quants.Q4_K, k_quants.Q5_K, k_quants.Q6_K,
        iq1.IQ1_S, iq1.IQ1_M, iq2.IQ2_XXS, iq2.IQ2_XS, iq2.IQ2_S, iq3.IQ3_XXS, iq3.IQ3_S, iq4.IQ4_NL, iq4.IQ4_XS,
        ternary.TQ1_0, ternary.TQ2_0, ternary.Q1_0, fp4.MXFP4, fp4.NVFP4,
    )
}

SLICE = 1 << 16    # weights decoded at a time: temporaries stay in the L2 cache


def get_format(tensor_type: TensorType) -> Format:
    """The format of a tensor type. Raises UnsupportedModelError with the types there are."""
    try:
        return FORMATS[tensor_type]
    except KeyError:
        name = getattr(tensor_type, "name", tensor_type)
        known = " ".join(sorted(t.name for t in FORMATS))
        raise UnsupportedModelError(f"tensor type {name} has no format here; supported: {known}") from None


def as_blocks(data: NDArray[np.uint8], tensor_type: TensorType) -> Blocks:
    """Rows of bytes (..., row_bytes) as blocks (..., n_blocks): a view where the last axis is contiguous.

    Raises GgpyError when rows are not bytes or do not hold whole blocks.
    """
    block = get_format(tensor_type).block
    if data.dtype != np.uint8 or data.ndim == 0:
        raise GgpyError(f"{tensor_type.name} rows are uint8 (..., row_bytes), not {data.dtype} {data.shape}")
    if data.shape[-1] % block.itemsize:
        raise GgpyError(f"a row of {data.shape[-1]:,} bytes is no whole number of {tensor_type.name} blocks "
                        f"of {block.itemsize} bytes")
    if data.shape[-1] and data.strides[-1] != 1:
        data = np.ascontiguousarray(data)
    return data.view(block)


def dequantize(data: NDArray[np.uint8], tensor_type: TensorType) -> Float32:
    """Weights of rows of bytes (..., row_bytes) as float32 (..., n); needs no memory to speak of beyond the result."""
    fmt = get_format(tensor_type)
    blocks = as_blocks(data, tensor_type)
    flat = blocks.reshape(-1)
    weights = np.empty((flat.size, fmt.block_size), np.float32)
    step = max(1, SLICE // fmt.block_size)
    for start in range(0, flat.size, step):
        weights[start : start + step] = fmt.dequantize(flat[start : start + step])
    return weights.reshape(*blocks.shape[:-1], blocks.shape[-1] * fmt.block_size)


def integers(data: NDArray[np.uint8], tensor_type: TensorType) -> Integers:
    """The exact integers of rows of bytes (..., row_bytes), blocks joined along the row: see `Integers`.

    Raises UnsupportedModelError for types of plain numbers, which have none.
    """
    fmt = get_format(tensor_type)
    if fmt.integers is None:
        raise UnsupportedModelError(f"{tensor_type.name} is not a quantised type: it has no integers; use dequantize")
    blocks = as_blocks(data, tensor_type)
    per_block, lead = fmt.integers(blocks), blocks.shape[:-1]
    n16, n32 = blocks.shape[-1] * fmt.block_size // 16, blocks.shape[-1] * fmt.block_size // 32
    return Integers(
        q=per_block.q.reshape(*lead, n16, 16),
        scale=per_block.scale.reshape(*lead, n16),
        d=per_block.d.reshape(*lead, n32),
        min=None if per_block.min is None else per_block.min.reshape(*lead, n16),
        dm=None if per_block.dm is None else per_block.dm.reshape(*lead, n32),
    )


def quantize(x: Float32, tensor_type: TensorType) -> NDArray[np.uint8]:
    """Rows of float32 (..., n) as bytes (..., row_bytes), as llama.cpp's reference quantiser makes them.

    Raises UnsupportedModelError where there is no quantiser, GgpyError when n is no whole number of blocks.
    """
    fmt = get_format(tensor_type)
    if fmt.quantize is None:
        able = " ".join(sorted(t.name for t, f in FORMATS.items() if f.quantize))
        raise UnsupportedModelError(f"cannot quantise to {tensor_type.name}; there are quantisers for: {able}")
    if x.ndim == 0 or x.shape[-1] % fmt.block_size:
        raise GgpyError(f"a row of {x.shape[-1] if x.ndim else 0:,} weights is no whole number of {tensor_type.name} "
                        f"blocks of {fmt.block_size} weights")
    lead, n_blocks = x.shape[:-1], x.shape[-1] // fmt.block_size
    flat = np.ascontiguousarray(x, np.float32).reshape(-1, fmt.block_size)
    blocks = np.empty(len(flat), fmt.block)
    step = max(1, SLICE // fmt.block_size)
    for start in range(0, len(flat), step):
        blocks[start : start + step] = fmt.quantize(flat[start : start + step])
    return blocks.view(np.uint8).reshape(*lead, n_blocks * fmt.block.itemsize)
