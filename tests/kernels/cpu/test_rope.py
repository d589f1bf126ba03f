"""Rotary embedding against float64, in place and not, at odd sizes and for any number of threads."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import ROPE, argument_block
from ggpy.kernels.cpu.step import STEP

Float32 = npt.NDArray[np.float32]
RunKernel = Callable[..., None]
TOLERANCE = 3e-7        # a product and a fused multiply-add, of values below 4


def rope(run_kernel: RunKernel, pairing: str, x: Float32, cos: Float32, sin: Float32, in_place: bool = False,
         n_threads: int = 1) -> Float32:
    """x (n_rows, n_head, head_dim) turned by cos, sin (n_rows, n_rot / 2)."""
    out = x.copy() if in_place else np.full_like(x, np.nan)
    source = out if in_place else x
    run_kernel(f"rope.{pairing}", argument_block(
        ROPE, x=source.ctypes.data, n_head=x.shape[1], head_dim=x.shape[2], n_rot=2 * cos.shape[1],
        cos=cos.ctypes.data, sin=sin.ctypes.data, out=out.ctypes.data, n_rows=STEP.n_tokens),
        n_threads, n_tokens=len(x))
    return out


def meaning(pairing: str, x: Float32, cos: Float32, sin: Float32) -> Float32:
    n = cos.shape[1]
    first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if pairing == "interleaved" else (
        slice(0, n), slice(n, 2 * n))
    out = x.astype(np.float64)
    a, b = out[..., first].copy(), out[..., second].copy()
    out[..., first] = a * cos[:, None] - b * sin[:, None]
    out[..., second] = b * cos[:, None] + a * sin[:, None]
    return out.astype(np.float32)


def example(n_rows: int, n_head: int, head_dim: int, n_rot: int) -> tuple[Float32, Float32, Float32]:
    rng = np.random.default_rng(head_dim)
    angles = rng.uniform(0, 7, (n_rows, n_rot // 2))
    x = rng.uniform(-4, 4, (n_rows, n_head, head_dim)).astype(np.float32)
    return x, np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


@pytest.mark.parametrize(("pairing", "expected"), [("interleaved", [-2, 1, -4, 3, 5]), ("neox", [-3, -4, 1, 2, 5])])
def test_a_quarter_turn(run_kernel: RunKernel, pairing: str, expected: list[float]) -> None:
    """Both pairs of (1, 2, 3, 4, 5) turn by 90 degrees; the fifth dimension is no part of them."""
    x = np.array([[[1, 2, 3, 4, 5]]], np.float32)
    zero, one = np.zeros((1, 2), np.float32), np.ones((1, 2), np.float32)
    assert rope(run_kernel, pairing, x, zero, one).tolist() == [[expected]]


@pytest.mark.parametrize("pairing", ["interleaved", "neox"])
@pytest.mark.parametrize(("head_dim", "n_rot"), [(16, 16), (24, 24), (64, 64), (80, 32), (96, 96), (128, 64), (66, 34)])
def test_rope_is_what_float64_says(run_kernel: RunKernel, pairing: str, head_dim: int, n_rot: int) -> None:
    """Each pair turns by its row's angle, and the other dimensions are copied, into new memory or in place."""
    x, cos, sin = example(5, 3, head_dim, n_rot)
    out = rope(run_kernel, pairing, x, cos, sin)
    assert np.abs(out - meaning(pairing, x, cos, sin)).max() <= TOLERANCE * 4
    assert np.array_equal(out[..., n_rot:], x[..., n_rot:])
    assert np.array_equal(rope(run_kernel, pairing, x, cos, sin, in_place=True), out)


@pytest.mark.parametrize("pairing", ["interleaved", "neox"])
def test_bits_do_not_depend_on_rows_or_threads(run_kernel: RunKernel, pairing: str) -> None:
    """A row alone, and all rows by three threads, give the same bits."""
    x, cos, sin = example(7, 2, 64, 48)
    out = rope(run_kernel, pairing, x, cos, sin)
    assert np.array_equal(rope(run_kernel, pairing, x, cos, sin, n_threads=3), out)
    alone = [rope(run_kernel, pairing, x[i: i + 1], cos[i: i + 1], sin[i: i + 1]) for i in range(len(x))]
    assert np.array_equal(np.concatenate(alone), out)
