"""RMS norm and layer norm against float64, at odd widths, in groups, and with the int8 form."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import LAYER_NORM, QUANTIZE, RMS_NORM, argument_block
from ggpy.kernels.cpu.step import STEP

Float32 = npt.NDArray[np.float32]
RunKernel = Callable[..., None]
NO_INT8 = {"q": 0, "da": 0, "ys": 0, "n16": 0, "n_blocks": 0}
EPS = 1e-5
TOLERANCE = 2e-6        # of the largest value: float32 sums in 64 parts


class Int8:
    """Room for the int8 form of a matrix, filled with a pattern that the kernel must overwrite."""

    def __init__(self, n_rows: int, n_blocks: int) -> None:
        self.q = np.full(n_rows * n_blocks * 32, 99, np.int8)
        self.da, self.ys = np.full((2, n_rows * n_blocks), 99, np.float32)
        self.n16 = np.full(n_rows * n_blocks * 2, 99, np.int32)
        self.fields = {"q": self.q.ctypes.data, "da": self.da.ctypes.data, "ys": self.ys.ctypes.data,
                       "n16": self.n16.ctypes.data, "n_blocks": n_blocks}

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Int8)
        return all(np.array_equal(getattr(self, name), getattr(other, name)) for name in ("q", "da", "ys", "n16"))


def address(x: Float32 | None) -> int:
    return 0 if x is None else x.ctypes.data


def rms_norm(run_kernel: RunKernel, x: Float32, weight: Float32 | None = None, groups: int = 1, shared: bool = True,
             int8: Int8 | None = None, n_threads: int = 1) -> Float32:
    out = np.full_like(x, np.nan)
    width = x.shape[1]
    run_kernel("norm.rms", argument_block(
        RMS_NORM, x=address(x), weight=address(weight), weight_stride=0 if shared else width // groups, groups=groups,
        eps=EPS, width=width, out=address(out), n_rows=STEP.n_tokens, **(int8.fields if int8 else NO_INT8)),
        n_threads, n_tokens=len(x))
    return out


def layer_norm(run_kernel: RunKernel, x: Float32, weight: Float32 | None = None, bias: Float32 | None = None,
               groups: int = 1, int8: Int8 | None = None, n_threads: int = 1) -> Float32:
    out = np.full_like(x, np.nan)
    run_kernel("norm.layer", argument_block(
        LAYER_NORM, x=address(x), weight=address(weight), bias=address(bias), groups=groups, eps=EPS,
        width=x.shape[1], out=address(out), n_rows=STEP.n_tokens, **(int8.fields if int8 else NO_INT8)),
        n_threads, n_tokens=len(x))
    return out


def quantized(run_kernel: RunKernel, x: Float32, n_blocks: int) -> Int8:
    form = Int8(len(x), n_blocks)
    run_kernel("quantize.quantize", argument_block(QUANTIZE, x=address(x), n_filled=x.shape[1] // 32,
                                                   n_rows=STEP.n_tokens, **form.fields), n_tokens=len(x))
    return form


def meaning(x: Float32, weight: Float32 | None, bias: Float32 | None, groups: int, centred: bool) -> Float32:
    """Both norms in float64; a weight of a group's width is shared by all groups."""
    parts = x.astype(np.float64).reshape(len(x), groups, -1)
    if centred:
        parts = parts - parts.mean(axis=-1, keepdims=True)
    parts = parts / np.sqrt(np.mean(parts**2, axis=-1, keepdims=True) + EPS)
    if weight is not None:
        parts = parts * weight.reshape(-1, parts.shape[-1])
    if bias is not None:
        parts = parts + bias.reshape(-1, parts.shape[-1])
    result: Float32 = parts.reshape(x.shape).astype(np.float32)
    return result


def close(result: Float32, expected: Float32) -> bool:
    return bool(np.abs(result - expected).max() <= TOLERANCE * max(1.0, np.abs(expected).max()))


def normal(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_rms_norm_of_a_hand_made_row(run_kernel: RunKernel) -> None:
    """The root mean square of (3, 4, 0, 0) is 2.5."""
    x = np.array([[3, 4, 0, 0]], np.float32)
    weight = np.array([1, 2, 3, 4], np.float32)
    np.testing.assert_allclose(rms_norm(run_kernel, x, weight), [[1.2, 3.2, 0, 0]], rtol=1e-5)


def test_layer_norm_of_a_hand_made_row(run_kernel: RunKernel) -> None:
    """(1, 3) has mean 2 and deviation 1."""
    x = np.array([[1, 3]], np.float32)
    result = layer_norm(run_kernel, x, np.array([2, 4], np.float32), np.array([10, 20], np.float32))
    np.testing.assert_allclose(result, [[8, 24]], rtol=1e-5)


def test_a_row_of_zeros_stays_zero(run_kernel: RunKernel) -> None:
    """Epsilon keeps both norms from dividing by zero."""
    x = np.zeros((1, 48), np.float32)
    assert not rms_norm(run_kernel, x).any()
    assert not layer_norm(run_kernel, x).any()


@pytest.mark.parametrize("width", [1, 7, 16, 48, 64, 96, 100, 576, 4099])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e15])
def test_rms_norm_matches_float64(run_kernel: RunKernel, width: int, size: float) -> None:
    """Any width, and activations as large as float32 squares allow."""
    x = normal(3, width) * np.float32(size)
    weight = normal(width, seed=1)
    assert close(rms_norm(run_kernel, x, weight), meaning(x, weight, None, 1, False))


@pytest.mark.parametrize("width", [1, 7, 48, 96, 576, 4099])
@pytest.mark.parametrize("shift", [0.0, 20.0])
def test_layer_norm_matches_float64(run_kernel: RunKernel, width: int, shift: float) -> None:
    """A mean of many deviations costs accuracy only as float32 input does."""
    x = normal(3, width) + np.float32(shift)
    weight, bias = normal(2, width, seed=1)
    expected = meaning(x, weight, bias, 1, True)
    scale = 1.0 if shift == 0 else 10.0
    assert np.abs(layer_norm(run_kernel, x, weight, bias) - expected).max() <= scale * TOLERANCE * max(
        1.0, np.abs(expected).max())


def test_groups_share_a_weight_or_have_their_own(run_kernel: RunKernel) -> None:
    """Each of 3 groups of 24 is normalised by itself."""
    x = normal(2, 72) * np.repeat([1, 10, 100], 24).astype(np.float32)
    shared, own, bias = normal(24, seed=1), normal(72, seed=2), normal(72, seed=3)
    assert close(rms_norm(run_kernel, x, shared, 3), meaning(x, shared, None, 3, False))
    assert close(rms_norm(run_kernel, x, own, 3, shared=False), meaning(x, own, None, 3, False))
    assert close(layer_norm(run_kernel, x, own, bias, 3), meaning(x, own, bias, 3, True))


def test_absent_weight_and_bias_stand_for_ones_and_zeros(run_kernel: RunKernel) -> None:
    """Address 0 leaves a factor or a term out."""
    x, weight, bias = normal(2, 40), normal(40, seed=1), normal(40, seed=2)
    assert close(rms_norm(run_kernel, x), meaning(x, None, None, 1, False))
    assert close(layer_norm(run_kernel, x, weight), meaning(x, weight, None, 1, True))
    assert close(layer_norm(run_kernel, x, None, bias), meaning(x, None, bias, 1, True))


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_int8_form_is_that_of_the_result(run_kernel: RunKernel, n_threads: int) -> None:
    """What a norm leaves in int8 equals quantising its output, over a chunk border and with a block of padding."""
    x, weight, bias = normal(19, 96), normal(96, seed=1), normal(96, seed=2)
    form = Int8(19, 4)
    out = rms_norm(run_kernel, x, weight, int8=form, n_threads=n_threads)
    assert form == quantized(run_kernel, out, 4)
    form = Int8(19, 4)
    out = rms_norm(run_kernel, x, weight[:32], groups=3, int8=form, n_threads=n_threads)
    assert form == quantized(run_kernel, out, 4)
    form = Int8(19, 4)
    out = layer_norm(run_kernel, x, weight, bias, int8=form, n_threads=n_threads)
    assert form == quantized(run_kernel, out, 4)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_a_row_does_not_depend_on_its_company(run_kernel: RunKernel, n_threads: int) -> None:
    """The bits of 7 rows together, in any number of threads, are those of each row alone."""
    x, weight, bias = normal(7, 100), normal(100, seed=1), normal(100, seed=2)
    rms = rms_norm(run_kernel, x, weight[:50], groups=2, n_threads=n_threads)
    layer = layer_norm(run_kernel, x, weight, bias, n_threads=n_threads)
    for i in range(7):
        assert np.array_equal(rms[i: i + 1], rms_norm(run_kernel, x[i: i + 1], weight[:50], groups=2))
        assert np.array_equal(layer[i: i + 1], layer_norm(run_kernel, x[i: i + 1], weight, bias))
