"""Plain numbers: F32, F16, BF16, F64 and the integers I8 to I64. One number is a block of one weight."""

from __future__ import annotations

import numpy as np

from ggpy.arrays import Float32
from ggpy.formats.base import Blocks, Format
from ggpy.gguf.types import TensorType

BF16_BLOCK = np.dtype([("w", "<u2")])    # the upper half of a float32


def _number(tensor_type: TensorType, dtype: str, *, can_quantize: bool) -> Format:
    """The format of one NumPy number; `quantize` only where a float32 survives as the nearest value."""
    block = np.dtype([("w", dtype)])

    def dequantize(blocks: Blocks) -> Float32:
        return blocks["w"].astype(np.float32)[..., None]

    def quantize(x: Float32) -> Blocks:
        blocks = np.empty(x.shape[:-1], block)
        blocks["w"] = x[..., 0]     # beyond f16's range: infinity and NumPy's overflow warning
        return blocks

    return Format(type=tensor_type, block=block, block_size=1, dequantize=dequantize,
                  quantize=quantize if can_quantize else None)


def bf16_dequantize(blocks: Blocks) -> Float32:
    """The float32 whose upper half is stored and whose lower half is zero."""
    bits = blocks["w"].astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)[..., None]


def bf16_quantize(x: Float32) -> Blocks:
    """Round to nearest, ties to even; a NaN stays one (its quiet bit is set, so that the lower half may go)."""
    bits = np.ascontiguousarray(x[..., 0]).view(np.uint32)
    is_nan = (bits & 0x7FFFFFFF) > 0x7F800000
    rounded = (bits + (0x7FFF + (bits >> 16 & 1))) >> 16
    blocks = np.empty(x.shape[:-1], BF16_BLOCK)
    blocks["w"] = np.where(is_nan, bits >> 16 | 0x40, rounded)
    return blocks


F32 = _number(TensorType.F32, "<f4", can_quantize=True)
F16 = _number(TensorType.F16, "<f2", can_quantize=True)
BF16 = Format(type=TensorType.BF16, block=BF16_BLOCK, block_size=1, dequantize=bf16_dequantize, quantize=bf16_quantize)
F64 = _number(TensorType.F64, "<f8", can_quantize=True)
I8 = _number(TensorType.I8, "i1", can_quantize=False)
I16 = _number(TensorType.I16, "<i2", can_quantize=False)
I32 = _number(TensorType.I32, "<i4", can_quantize=False)
I64 = _number(TensorType.I64, "<i8", can_quantize=False)
