"""Kernels that touch every value once, at sizes that leave a part of a vector over."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import ADD, SCALE, SOFTCAP, SOFTMAX, TAKE_ROWS, argument_block
from ggpy.kernels.cpu.step import STEP

Float32 = npt.NDArray[np.float32]
RunKernel = Callable[..., None]
SHAPES = [(1, 1), (3, 7), (2, 48), (1, 576), (5, 33), (40, 1)]


def apply(run_kernel: RunKernel, name: str, layout: Any, shape: tuple[int, ...], n_threads: int = 1,
          **values: int | float) -> Float32:
    """The kernel's output; values around it must stay as they were."""
    room = np.full(shape[0] * shape[1] + 32, 1234.5, np.float32)
    out = room[16:-16]
    run_kernel(f"elementwise.{name}", argument_block(layout, width=shape[1], out=out.ctypes.data,
                                                     n_rows=STEP.n_tokens, **values), n_threads, n_tokens=shape[0])
    assert (room[:16] == 1234.5).all()
    assert (room[-16:] == 1234.5).all()
    return out.reshape(shape)


def normal(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_add(run_kernel: RunKernel, shape: tuple[int, int], n_threads: int) -> None:
    """The float32 sum, exactly."""
    a, b = normal(*shape), normal(*shape, seed=1)
    result = apply(run_kernel, "add", ADD, shape, n_threads, a=a.ctypes.data, b=b.ctypes.data)
    np.testing.assert_array_equal(result, a + b)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_scale(run_kernel: RunKernel, shape: tuple[int, int], n_threads: int) -> None:
    """The float32 product with a factor that is float32 first."""
    x = normal(*shape)
    result = apply(run_kernel, "scale", SCALE, shape, n_threads, x=x.ctypes.data, factor=0.1)
    np.testing.assert_array_equal(result, x * np.float32(0.1))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("n_threads", [1, 3])
def test_softmax(run_kernel: RunKernel, shape: tuple[int, int], n_threads: int) -> None:
    """Each row by itself, also where e^x would be too large."""
    x = normal(*shape) * np.float32(3) + np.float32(200)
    result = apply(run_kernel, "softmax", SOFTMAX, shape, n_threads, x=x.ctypes.data)
    p = np.exp(x.astype(np.float64) - 200)
    assert np.abs(result - p / p.sum(axis=-1, keepdims=True)).max() <= 1e-6


def test_tanh_is_accurate_everywhere(run_kernel: RunKernel) -> None:
    """A soft cap of 1 is tanh itself: relative error below 3e-7 from 1e-30 to beyond saturation, both signs."""
    size = np.concatenate([np.geomspace(1e-30, 1e-3, 2000), np.linspace(1e-3, 12, 100_000), [50, 1e30]])
    x = np.concatenate([size, -size, [0.0]]).astype(np.float32)[None]
    result = apply(run_kernel, "softcap", SOFTCAP, x.shape, x=x.ctypes.data, cap=1.0)
    expected = np.tanh(x.astype(np.float64))
    assert (np.abs(result - expected) <= 3e-7 * np.abs(expected)).all()


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_softcap(run_kernel: RunKernel, n_threads: int) -> None:
    """Values stay within the cap and small ones pass nearly unchanged; a NaN is not hidden."""
    x = np.array([[0.01, -3, 30, 1e6, -np.inf, np.nan, 29]], np.float32)
    result = apply(run_kernel, "softcap", SOFTCAP, x.shape, n_threads, x=x.ctypes.data, cap=30.0)
    np.testing.assert_allclose(result, 30 * np.tanh(x.astype(np.float64) / 30), rtol=5e-7)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 7, 48, 100])
def test_take_rows(run_kernel: RunKernel, width: int, n_threads: int) -> None:
    """Output i is the row that the step names, in the step's order."""
    x = normal(9, width)
    rows = np.array([8, 0, 3, 3], np.int32)
    out = np.full((5, width), 7, np.float32)
    run_kernel("elementwise.take_rows", argument_block(TAKE_ROWS, x=x.ctypes.data, width=width, out=out.ctypes.data),
               n_threads, n_tokens=9, n_outputs=4, output_rows=rows.ctypes.data)
    np.testing.assert_array_equal(out[:4], x[rows])
    assert (out[4] == 7).all()
