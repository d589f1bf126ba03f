"""The kernel of low-rank adapters, at sizes that leave a part of a vector over."""

from collections.abc import Callable

import numpy as np
import pytest

from ggpy.kernels.cpu.arguments import LOW_RANK, argument_block
from ggpy.kernels.cpu.step import STEP

RunKernel = Callable[..., None]


@pytest.mark.parametrize(("n_in", "n_out", "rank"), [(1, 1, 1), (7, 33, 2), (64, 16, 3), (130, 48, 9)])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_what_rows_ask_for_is_added(run_kernel: RunKernel, n_in: int, n_out: int, rank: int, n_threads: int) -> None:
    """The first adapter has no part in this matrix, the third one is asked for by no row, and row 1 asks for none."""
    rng = np.random.default_rng(n_in)
    a, b, x, out = (rng.standard_normal(shape).astype(np.float32) for shape in
                    ((3, rank, n_in), (3, rank, n_out), (4, n_in), (4, n_out)))
    scales = np.array([[1, 0.5, 0], [0, 0, 0], [3, -2, 0], [0, 1, 0]], np.float32)
    terms = np.array([[0, 0, 0], *([a[i].ctypes.data, b[i].ctypes.data, rank] for i in (1, 2))], np.int64)
    room = np.full(out.size + 32, 1234.5, np.float32)
    room[16:-16] = out.ravel()
    run_kernel("low_rank.add", argument_block(
        LOW_RANK, x=x.ctypes.data, n_in=n_in, out=room[16:].ctypes.data, n_out=n_out, terms=terms.ctypes.data,
        n_adapters=3, scales=scales.ctypes.data, row_is_output=0, n_rows=STEP.n_tokens), n_threads, n_tokens=4)
    expected = out + scales[:, 1:2] * (x.astype(np.float64) @ a[1].T @ b[1])
    found = room[16:-16].reshape(4, n_out)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert np.array_equal(found[1], out[1])
    assert (room[:16] == 1234.5).all()
    assert (room[-16:] == 1234.5).all()


def test_output_rows_ask_by_their_tokens(run_kernel: RunKernel) -> None:
    """Row i is token output_rows[i]."""
    one = np.ones((1, 1), np.float32)
    scales, rows = np.array([[0], [5], [7]], np.float32), np.array([2, 0], np.int32)
    x, out, terms = np.ones((2, 1), np.float32), np.zeros((2, 1), np.float32), np.array([[0, 0, 1]], np.int64)
    terms[0, :2] = one.ctypes.data
    run_kernel("low_rank.add", argument_block(
        LOW_RANK, x=x.ctypes.data, n_in=1, out=out.ctypes.data, n_out=1, terms=terms.ctypes.data, n_adapters=1,
        scales=scales.ctypes.data, row_is_output=1, n_rows=STEP.n_outputs), n_outputs=2, output_rows=rows.ctypes.data)
    assert out.ravel().tolist() == [7, 0]
