"""What the bits of each tensor type mean, in NumPy: byte layout, exact integers, float32 weights, quantiser.

    get_format(TensorType.Q4_K).block                  # layout of one block
    dequantize(rows, TensorType.Q4_K)                  # uint8 (..., row_bytes) -> float32 (..., n)
    integers(rows, TensorType.Q4_K)                    # the exact integers that kernels are tested against
    quantize(x, TensorType.Q4_0)                       # float32 (..., n) -> uint8 (..., row_bytes)

This is the meaning, not the fast path: kernels live in `ggpy.kernels` and are tested against it.
"""

from ggpy.formats.base import Blocks, Format, Integers
from ggpy.formats.table import FORMATS, as_blocks, dequantize, get_format, integers, quantize

__all__ = ["FORMATS", "Blocks", "Format", "Integers", "as_blocks", "dequantize", "get_format", "integers", "quantize"]
