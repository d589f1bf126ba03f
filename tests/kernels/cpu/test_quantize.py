"""Activations to int8, against `canonical.quantize` and the layout that quantize.py states."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import CHUNK_ROWS, QUANTIZE, argument_block
from ggpy.kernels.cpu.step import STEP
from tests.kernels.cpu import canonical

RunKernel = Callable[..., None]
Float32 = npt.NDArray[np.float32]


def quantized(run_kernel: RunKernel, x: Float32, n_blocks: int, n_threads: int = 1) -> tuple[
        npt.NDArray[np.int8], Float32, Float32, npt.NDArray[np.int32]]:
    """q, da, ys, n16 as the kernel lays them out, over memory full of other bits."""
    n_rows = len(x)
    q, da = np.full(n_rows * n_blocks * 32, 77, np.int8), np.full(n_rows * n_blocks, 7, np.float32)
    ys, n16 = da.copy(), np.full(n_rows * n_blocks * 2, 7, np.int32)
    block = argument_block(QUANTIZE, x=x.ctypes.data, q=q.ctypes.data, da=da.ctypes.data, ys=ys.ctypes.data,
                           n16=n16.ctypes.data, n_blocks=n_blocks, n_filled=x.shape[1] // 32, n_rows=STEP.n_tokens)
    run_kernel("quantize.quantize", block, n_threads=n_threads, n_tokens=n_rows)
    return q, da, ys, n16


def test_one_block_by_hand(run_kernel: RunKernel) -> None:
    """The largest magnitude becomes 127, halves round to even, and sums have their signs turned."""
    x = np.zeros((1, 32), np.float32)
    x[0, [0, 1, 2, 3, 31]] = [254, 3, 5, -9, 2]         # da = 2
    q, da, ys, n16 = quantized(run_kernel, x, 1)
    assert q[[0, 1, 2, 3, 31]].tolist() == [127, 2, 2, -4, 1]
    assert da.tolist() == [2]
    assert ys.tolist() == [-2 * 128]
    assert n16.tolist() == [-128 * 127, -128 * 1]


def test_rows_stand_in_chunks_of_32(run_kernel: RunKernel) -> None:
    """Rows of 3 blocks padded to 4: of each chunk all rows' block 0, then all rows' block 1, and so on."""
    x = np.random.default_rng(0).standard_normal((35, 96)).astype(np.float32)
    x[34, 32:64] = 0
    expected = canonical.quantize(np.pad(x, ((0, 0), (0, 32))))
    q, da, ys, n16 = quantized(run_kernel, x, 4)
    for first, m in ((0, 32), (32, 3)):
        rows, at = slice(first, first + m), first * 4
        np.testing.assert_array_equal(q[at * 32:][: m * 128].reshape(4, m, 32), expected.q[rows].transpose(1, 0, 2))
        np.testing.assert_array_equal(da[at:][: m * 4].reshape(4, m), expected.da[rows].T)
        np.testing.assert_array_equal(ys[at:][: m * 4].reshape(4, m), expected.ys[rows].T)
        np.testing.assert_array_equal(n16[2 * at:][: m * 8].reshape(4, 2, m),
                                      -128 * expected.sums_of_16()[rows].transpose(1, 2, 0))
    assert CHUNK_ROWS == 32


@pytest.mark.parametrize("magnitude", [1e-42, 1e-30, 1.0, 1e37])
def test_any_magnitude_rounds_as_numpy(run_kernel: RunKernel, magnitude: float) -> None:
    """Subnormal and huge activations give NumPy's bits in scales and integers."""
    x = (np.random.default_rng(1).standard_normal((1, 320)) * magnitude).astype(np.float32)
    expected = canonical.quantize(x)
    q, da, ys, _ = quantized(run_kernel, x, 10)
    np.testing.assert_array_equal(q.reshape(1, 10, 32), expected.q)
    np.testing.assert_array_equal(da.view(np.uint32), expected.da.ravel().view(np.uint32))
    np.testing.assert_array_equal(ys.view(np.uint32), expected.ys.ravel().view(np.uint32))


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_change_nothing(run_kernel: RunKernel, n_threads: int) -> None:
    """Rows shared by several threads are what one thread makes of them."""
    x = np.random.default_rng(2).standard_normal((37, 64)).astype(np.float32)
    for one, shared in zip(quantized(run_kernel, x, 2), quantized(run_kernel, x, 2, n_threads), strict=True):
        np.testing.assert_array_equal(shared, one)
