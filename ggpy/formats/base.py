"""What a format is: a byte layout, the integers it stands for, and how they become float32.

A tensor row is a sequence of blocks. Every quantised format here says the same thing in its own bits:

    w = d * scale * q  -  dm * min

with small integers `q` (one per weight), integer `scale` and `min` (one per 16 weights) and float32 `d` and `dm` (one
per 32 weights). `Integers` is that statement, and the one that integer kernels are tested against.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.gguf.types import TensorType

Blocks = NDArray[np.void]            # structured array (...,), one element per block

ONE = np.int32(1)                    # the scale of formats that have none below the block


@dataclass(frozen=True, slots=True)
class Integers:
    """The exact meaning of blocks: w = d * scale * q - dm * min, products exact in float32, one rounding at the minus.

    `n` is the number of weights (of a block, or of a row: see `ggpy.formats.integers`). All formats are stated in runs
    of 32 weights that share `d` and `dm`, each made of two runs of 16 that have their own `scale` and `min`. Formats
    with coarser scales repeat them (as broadcast, read-only views), so that one oracle serves all.

    Summed against 8-bit activations over 32 weights, sum(scale * q * x) stays below 2**24 in every format but NVFP4,
    whose scales have 18 bits: four significant ones and a power of two, so the two sums of 16 are exact in float32.
    """

    q: NDArray[np.int8]              # (..., n/16, 16)
    scale: NDArray[np.int32]         # (..., n/16)
    d: Float32                       # (..., n/32)
    min: NDArray[np.int32] | None    # (..., n/16); None: the format has no minimums
    dm: Float32 | None               # (..., n/32); None with `min`

    def weights(self) -> Float32:
        """The weights as float32 (..., n)."""
        w = self.q.astype(np.float32)
        with np.errstate(over="ignore", invalid="ignore"):     # a file may hold infinite scales
            w *= _per_16(self.d, self.scale)
            if self.dm is not None and self.min is not None:
                w -= _per_16(self.dm, self.min)
        return w.reshape(*w.shape[:-2], -1)


def _per_16(d: Float32, scale: NDArray[np.int32]) -> Float32:
    """d * scale as float32 (..., n/16, 1), ready to meet weights (..., n/16, 16)."""
    product: Float32 = scale.reshape(*d.shape, 2).astype(np.float32) * d[..., None]
    return product.reshape(*scale.shape, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One tensor type: the layout of its blocks and what they mean.

    `dequantize` takes blocks (...,) to float32 (..., block_size). `integers` is their exact integer statement, None for
    plain numbers (F32, F16, I8, ...). `quantize` takes float32 (..., block_size) to blocks (...,), byte for byte what
    llama.cpp's reference quantiser makes; None where a format has no such short rule.
    """

    type: TensorType
    block: np.dtype[np.void]         # the one place where the byte layout stands
    block_size: int                  # weights per block
    dequantize: Callable[[Blocks], Float32]
    integers: Callable[[Blocks], Integers] | None = None
    quantize: Callable[[Float32], Blocks] | None = None


def quantised(
    tensor_type: TensorType,
    block: np.dtype[np.void],
    block_size: int,
    integers: Callable[[Blocks], Integers],
    quantize: Callable[[Float32], Blocks] | None = None,
) -> Format:
    """A format that is fully described by its integers."""

    def dequantize(blocks: Blocks) -> Float32:
        return integers(blocks).weights()

    return Format(type=tensor_type, block=block, block_size=block_size, dequantize=dequantize, integers=integers,
                  quantize=quantize)


def make_integers(
    q: NDArray[np.int8],
    d: Float32,
    scale: NDArray[np.int32] | np.int32 = ONE,
    dm: Float32 | None = None,
    minimum: NDArray[np.int32] | np.int32 = ONE,
) -> Integers:
    """Integers of blocks (...,) from `q` (..., block_size) and per-block `d` (..., n): n divides block_size / 32.

    `scale` and `minimum` are (..., m) with m a divisor of block_size / 16, or one number for all. A value that stands
    for several runs is repeated over them.
    """
    shape, size = q.shape[:-1], q.shape[-1]

    def spread(values: NDArray[Any] | np.int32, n: int) -> NDArray[Any]:
        values = np.asarray(values)
        if values.ndim == 0:
            return np.broadcast_to(values, (*shape, n))
        each = n // values.shape[-1]
        if each == 1:
            return values
        if values.shape[-1] == 1:
            return np.broadcast_to(values, (*shape, n))
        return np.repeat(values, each, axis=-1)

    return Integers(
        q=q.reshape(*shape, size // 16, 16),
        scale=spread(scale, size // 16),
        d=spread(d, size // 32),
        min=None if dm is None else spread(minimum, size // 16),
        dm=None if dm is None else spread(dm, size // 32),
    )


def unpack(packed: NDArray[np.uint8], bits: int, run: int) -> NDArray[np.uint8]:
    """Fields of `bits` bits of bytes (..., n) as uint8 (..., n * 8 / bits), low bits first.

    Of every `run` bytes the lowest fields come out first, all `run` of them, then the next ones: with bits=4 and
    run=16, bytes 0..15 give weights 0..15 from their low halves and 16..31 from their high halves.
    """
    groups = packed.reshape(*packed.shape[:-1], -1, run)
    fields = np.empty((*groups.shape[:-1], 8 // bits, run), np.uint8)
    for i in range(8 // bits):
        np.right_shift(groups, i * bits, out=fields[..., i, :])
    fields &= (1 << bits) - 1
    return fields.reshape(*packed.shape[:-1], -1)


def pack(fields: NDArray[np.uint8], bits: int, run: int) -> NDArray[np.uint8]:
    """Bytes (..., n * bits / 8) from fields (..., n) below 2**bits: the inverse of `unpack`."""
    groups = fields.reshape(*fields.shape[:-1], -1, 8 // bits, run)
    packed = np.zeros((*groups.shape[:-2], run), np.uint8)
    for i in range(8 // bits):
        packed |= groups[..., i, :] << np.uint8(i * bits)
    return packed.reshape(*fields.shape[:-1], -1)


def f16_to_f32(field: NDArray[np.float16]) -> Float32:
    """A block's f16 field (...,) as float32 (..., 1): one value per block."""
    return field.astype(np.float32)[..., None]


def reciprocal(d: Float32) -> Float32:
    """1 / d, and 0 where d is 0."""
    with np.errstate(over="ignore"):
        return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def round_half_away(x: Float32) -> Float32:
    """`x` rounded to whole numbers, halves away from zero, as C's roundf."""
    magnitude = np.abs(x)
    whole = np.floor(magnitude)
    whole += magnitude - whole >= 0.5           # adding 0.5 before the floor would round 0.49999997 up
    rounded: Float32 = np.copysign(whole, x)
    return rounded
