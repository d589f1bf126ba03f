"""The canonical order of an integer linear in plain NumPy: what every kernel must give, bit for bit.

Stated in `ggpy/kernels/cpu/matmul.py` (the sum), `quantize.py` (the activations), `q2_k.py` and `expanded.py` (their
own terms). Nothing here knows of packed layouts, threads or vectors.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ggpy.formats import Integers, integers
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.packing import EXPANDED, packing_of

Float32 = npt.NDArray[np.float32]


def fma(a: Float32, b: Float32, c: Float32) -> Float32:
    """a * b + c rounded once to float32.

    The product is exact in float64. The sum is rounded to odd there (its last bit says that something was cut off), so
    that rounding it again to float32 gives what one rounding would.
    """
    product, addend = np.broadcast_arrays(a.astype(np.float64) * b, c.astype(np.float64))
    total = np.asarray(product + addend)
    part = total - product
    error = (product - (total - part)) + (addend - part)
    bits = total.view(np.int64)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where((error != 0) & (bits & 1 == 0), bits + step, bits).view(np.float64).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Activations:
    """Rows of activations in int8."""

    q: npt.NDArray[np.int8]         # (n_rows, n_blocks, 32)
    da: Float32                     # (n_rows, n_blocks)
    ys: Float32                     # (n_rows, n_blocks): -RN(da * sum(q))

    def sums_of_16(self) -> npt.NDArray[np.int64]:
        """(n_rows, n_blocks, 2)"""
        sums: npt.NDArray[np.int64] = self.q.reshape(*self.da.shape, 2, 16).sum(axis=-1, dtype=np.int64)
        return sums


def quantize(x: Float32) -> Activations:
    """Rows (n_rows, n_blocks * 32) with one scale per 32 values."""
    blocks = x.reshape(len(x), -1, 32)
    da = np.abs(blocks).max(axis=-1) / np.float32(127)
    da[da < np.finfo(np.float32).tiny] = 0
    q = np.rint(blocks / np.where(da == 0, np.float32(1), da)[..., None]).astype(np.int8)
    return Activations(q, da, -(da * q.sum(axis=-1, dtype=np.int32).astype(np.float32)))


def linear(rows: npt.NDArray[np.uint8], tensor_type: TensorType, x: Activations) -> Float32:
    """x @ weight.T as (n_rows, n_out), with weights (n_out, row_bytes) as they lie in a file."""
    stated = integers(rows, tensor_type)
    n_out, n_blocks = stated.d.shape
    scale = stated.scale.reshape(n_out, n_blocks, 2)
    products = np.einsum("objk,rbjk->robj", stated.q.reshape(n_out, n_blocks, 2, 16).astype(np.float64),
                         x.q.reshape(-1, n_blocks, 2, 16).astype(np.float64), optimize=True)     # exact: small integers
    if packing_of(tensor_type) is EXPANDED:
        float_scale = scale.astype(np.float32) * stated.d[..., None]
        sums = products.astype(np.float32)
        t = fma(sums[..., 1], float_scale[..., 1], sums[..., 0] * float_scale[..., 0])
    else:
        t = (products * scale).sum(axis=-1).astype(np.float32) * stated.d
    acc = np.zeros((len(x.da), n_out, 8), np.float32)
    for j in range(n_blocks):
        a = fma(t[..., j], x.da[:, None, j], acc[..., j % 8])
        if stated.min is not None:
            a = _minimum_of_block(tensor_type, stated, x, j, a)
        acc[..., j % 8] = a
    return ((acc[..., 0] + acc[..., 4]) + (acc[..., 2] + acc[..., 6])) + (
        (acc[..., 1] + acc[..., 5]) + (acc[..., 3] + acc[..., 7]))


def _minimum_of_block(tensor_type: TensorType, stated: Integers, x: Activations, j: int, a: Float32) -> Float32:
    """Adds the minimums of block j to its partial sums a (n_rows, n_out)."""
    assert stated.min is not None
    assert stated.dm is not None
    dm, minimum = stated.dm[:, j], stated.min[:, 2 * j: 2 * j + 2]
    if tensor_type is TensorType.Q2_K:          # the one format with minimums per 16 weights
        weighted = x.sums_of_16()[:, j] @ minimum.T.astype(np.int64)
        return fma(-(weighted.astype(np.float32) * dm), x.da[:, None, j], a)
    return fma(dm * minimum[:, 0].astype(np.float32), x.ys[:, None, j], a)
