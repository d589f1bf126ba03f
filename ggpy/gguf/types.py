"""Tensor types, value types and the description of one tensor, as GGUF numbers and sizes them."""

import math
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

MAGIC = b"GGUF"
VERSIONS = (2, 3)           # they differ in byte order only: 3 may be big-endian
ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 1 << 24     # nobody pads tensors to more than a few pages
MAX_DIMS = 4                # GGML_MAX_DIMS
MAX_NAME_BYTES = 63         # GGML_MAX_NAME counts the closing NUL
MAX_KEY_BYTES = 65535


class ValueType(IntEnum):
    """Type of a metadata value, or of the elements of an array."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


# dtype of every type of fixed size; STRING and ARRAY carry their length in the file
VALUE_DTYPES: dict[ValueType, np.dtype[Any]] = {
    ValueType.UINT8: np.dtype("u1"),
    ValueType.INT8: np.dtype("i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("?"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}


class TensorType(IntEnum):
    """How the weights of a tensor are stored; the numbers are ggml's. Gaps are types that ggml has removed."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41

    @property
    def block_size(self) -> int:
        """Weights in one block."""
        return BLOCK[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return BLOCK[self][1]


# weights per block, bytes per block
BLOCK: dict[TensorType, tuple[int, int]] = {
    TensorType.F32: (1, 4),
    TensorType.F16: (1, 2),
    TensorType.Q4_0: (32, 18),
    TensorType.Q4_1: (32, 20),
    TensorType.Q5_0: (32, 22),
    TensorType.Q5_1: (32, 24),
    TensorType.Q8_0: (32, 34),
    TensorType.Q8_1: (32, 40),
    TensorType.Q2_K: (256, 84),
    TensorType.Q3_K: (256, 110),
    TensorType.Q4_K: (256, 144),
    TensorType.Q5_K: (256, 176),
    TensorType.Q6_K: (256, 210),
    TensorType.Q8_K: (256, 292),
    TensorType.IQ2_XXS: (256, 66),
    TensorType.IQ2_XS: (256, 74),
    TensorType.IQ3_XXS: (256, 98),
    TensorType.IQ1_S: (256, 50),
    TensorType.IQ4_NL: (32, 18),
    TensorType.IQ3_S: (256, 110),
    TensorType.IQ2_S: (256, 82),
    TensorType.IQ4_XS: (256, 136),
    TensorType.I8: (1, 1),
    TensorType.I16: (1, 2),
    TensorType.I32: (1, 4),
    TensorType.I64: (1, 8),
    TensorType.F64: (1, 8),
    TensorType.IQ1_M: (256, 56),
    TensorType.BF16: (1, 2),
    TensorType.TQ1_0: (256, 54),
    TensorType.TQ2_0: (256, 66),
    TensorType.MXFP4: (32, 17),
    TensorType.NVFP4: (64, 36),
    TensorType.Q1_0: (128, 18),
}


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file: what it is and where its bytes lie. Holds the mapping alive, never a copy.

    `shape` is in NumPy order, outermost first: a linear weight is (n_out, n_in), ggml's `ne` reversed.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int                             # absolute, in bytes, in the file of its part
    part: int                               # index of the split file that holds it; 0 for a file in one piece
    _file: npt.NDArray[np.uint8] = field(repr=False, compare=False)     # every byte of that part

    @property
    def n_elements(self) -> int:
        """Weights in the tensor."""
        return math.prod(self.shape)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of `shape[-1]` weights."""
        return self.shape[-1] // self.type.block_size * self.type.block_bytes

    @property
    def size_bytes(self) -> int:
        """Bytes of the tensor in the file, without padding."""
        return math.prod(self.shape[:-1]) * self.row_bytes

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The tensor's bytes (size_bytes,), read-only, straight from the mapping."""
        return self._file[self.offset : self.offset + self.size_bytes]

    def rows(self) -> npt.NDArray[np.uint8]:
        """The tensor's bytes (n_rows, row_bytes), read-only, straight from the mapping."""
        return self.data.reshape(-1, self.row_bytes)


def shown(name: str | bytes) -> str:
    """`name` quoted for a message, shortened: names come from the file and may be 64 KB long."""
    text = repr(name)
    return text if len(text) <= 100 else f"{text[:80]}...{text[-10:]}"
