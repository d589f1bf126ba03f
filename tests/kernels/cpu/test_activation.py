"""Activations against float64: accuracy over all sizes of x, the gated forms, tails, sharing of rows, the int8 form."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import ACTIVATION, QUANTIZE, argument_block
from ggpy.kernels.cpu.step import STEP

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
RunKernel = Callable[..., None]
KINDS = ["silu", "gelu", "gelu_quick", "relu", "relu_squared", "swiglu_oai"]


def sigmoid(x: Float64) -> Float64:
    y: Float64 = np.exp(-np.logaddexp(0, -x))
    return y


MEANING: dict[str, Callable[[Float64], Float64]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu_squared": lambda x: np.maximum(x, 0) ** 2,
    "swiglu_oai": lambda x: np.minimum(x, 7) * sigmoid(1.702 * np.minimum(x, 7)),
}


def meaning(kind: str, x: Float32, up: Float32 | None) -> Float64:
    y = MEANING[kind](x.astype(np.float64))
    if up is None:
        return y
    return y * (np.clip(up.astype(np.float64), -7, 7) + 1 if kind == "swiglu_oai" else up)


def activate(run_kernel: RunKernel, kind: str, x: Float32, up: Float32 | None = None, n_threads: int = 1,
             int8: dict[str, int] | None = None) -> Float32:
    out = np.full_like(x, np.nan)
    fields = int8 or {"q": 0, "da": 0, "ys": 0, "n16": 0, "n_blocks": 0}
    run_kernel(f"activation.{kind}", argument_block(
        ACTIVATION, x=x.ctypes.data, up=0 if up is None else up.ctypes.data, width=x.shape[1], out=out.ctypes.data,
        n_rows=STEP.n_tokens, **fields), n_threads, n_tokens=len(x))
    return out


def normal(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_stays_zero(run_kernel: RunKernel, kind: str) -> None:
    """Every activation passes through the origin."""
    x = np.zeros((1, 3), np.float32)
    assert not activate(run_kernel, kind, x, np.ones_like(x)).any()


def test_hand_made_values(run_kernel: RunKernel) -> None:
    """silu(1) = 1 / (1 + 1/e); the clamps of swiglu_oai hold gate at 7 and up at 7 and -7."""
    one = np.array([[1.0, -1.0]], np.float32)
    np.testing.assert_allclose(activate(run_kernel, "silu", one), [[0.7310586, -0.26894143]], rtol=3e-7)
    np.testing.assert_array_equal(activate(run_kernel, "relu", one), [[1, 0]])
    np.testing.assert_array_equal(activate(run_kernel, "relu_squared", 3 * one), [[9, 0]])
    gate, up = np.array([[50.0, 50.0]], np.float32), np.array([[50.0, -50.0]], np.float32)
    np.testing.assert_allclose(activate(run_kernel, "swiglu_oai", gate, up), [[56, -42]], rtol=1e-5)


def test_silu_is_accurate_from_minus_80_to_80(run_kernel: RunKernel) -> None:
    """The relative error of e^x in vectors stays below 3e-7, seen through x / (1 + e^-x)."""
    x = np.linspace(-80, 80, 160_001, dtype=np.float32)[None]
    expected = meaning("silu", x, None)
    error = np.abs(activate(run_kernel, "silu", x) - expected)
    assert (error <= 3e-7 * np.abs(expected)).all()


@pytest.mark.parametrize("kind", ["gelu", "gelu_quick", "swiglu_oai"])
def test_error_is_small_against_the_input(run_kernel: RunKernel, kind: str) -> None:
    """Where the output nearly vanishes, the error is still a rounding of the input's size."""
    x = np.linspace(-12, 12, 100_001, dtype=np.float32)[None]
    up = np.zeros_like(x) if kind == "swiglu_oai" else None
    error = np.abs(activate(run_kernel, kind, x, up) - meaning(kind, x, up))
    assert (error <= 3e-7 * np.abs(x)).all()


@pytest.mark.parametrize("kind", KINDS)
def test_extremes(run_kernel: RunKernel, kind: str) -> None:
    """Huge values give 0 or themselves, tiny ones do not vanish, a NaN is not hidden."""
    x = np.array([[1e30, -1e30, 1e-30, 200, -200, np.nan]], np.float32)
    up = np.zeros_like(x) if kind == "swiglu_oai" else None
    result = activate(run_kernel, kind, x, up)[0]
    with np.errstate(over="ignore", invalid="ignore"):
        expected = meaning(kind, x, up)[0].astype(np.float32)
    np.testing.assert_allclose(result[:5], expected[:5], rtol=1e-6, atol=1e-37)
    assert np.isnan(result[5])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [1, 7, 48, 96, 576])
def test_gated_form_at_any_width(run_kernel: RunKernel, kind: str, width: int) -> None:
    """act(x) * up, and nothing is written beyond a row's end."""
    x, up = 4 * normal(3, width), 4 * normal(3, width, seed=1)
    np.testing.assert_allclose(activate(run_kernel, kind, x, up), meaning(kind, x, up), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("width", [1, 70, 576])
def test_bits_are_those_of_a_row_alone(run_kernel: RunKernel, n_threads: int, width: int) -> None:
    """Neither other rows nor the number of threads that share a row change it."""
    x, up = normal(5, width), normal(5, width, seed=1)
    together = activate(run_kernel, "silu", x, up, n_threads)
    for i in range(5):
        assert np.array_equal(together[i: i + 1], activate(run_kernel, "silu", x[i: i + 1], up[i: i + 1]))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("n_rows", [1, 19])
def test_int8_form_is_that_of_the_result(run_kernel: RunKernel, n_threads: int, n_rows: int) -> None:
    """It equals quantising the output afterwards, with a block of padding behind three filled ones."""
    x, up = normal(n_rows, 96), normal(n_rows, 96, seed=1)
    forms: list[dict[str, npt.NDArray[Any]]] = [
        {"q": np.full(n_rows * 128, 99, np.int8), "da": np.full(n_rows * 4, 99, np.float32),
         "ys": np.full(n_rows * 4, 99, np.float32), "n16": np.full(n_rows * 8, 99, np.int32)} for _ in range(2)]
    made, expected = ({name: array.ctypes.data for name, array in form.items()} | {"n_blocks": 4} for form in forms)
    out = activate(run_kernel, "gelu", x, up, n_threads, made)
    run_kernel("quantize.quantize", argument_block(QUANTIZE, x=out.ctypes.data, n_filled=3, n_rows=STEP.n_tokens,
                                                   **expected), n_tokens=n_rows)
    for name in forms[0]:
        np.testing.assert_array_equal(forms[0][name], forms[1][name])
