"""F32, F16 and BF16 weights: bit for bit the stated order, and close to float64."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.formats import get_format
from ggpy.gguf import TensorType
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import FLOAT_LINEAR, PACK, argument_block
from ggpy.kernels.cpu.packing import packing_of
from ggpy.kernels.cpu.step import STEP
from tests.kernels.cpu.canonical import fma

RunKernel = Callable[..., None]
Bytes = npt.NDArray[np.uint8]
Float32 = npt.NDArray[np.float32]
TYPES = [TensorType.F32, TensorType.F16, TensorType.BF16]
SHAPES = [(1, 1), (16, 4), (17, 7), (33, 48), (5, 96), (64, 577), (40, 130)]       # n_out, n_in


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compiles all kernels of this file at once, in parallel."""
    object_loader.addresses(f"{module}.{name}" for module in ("f32", "f16", "bf16") for name in ("linear", "pack"))


def stored(weights: Float32, tensor_type: TensorType) -> tuple[Bytes, Float32]:
    """Rows as a file holds them, and what they then mean."""
    fmt = get_format(tensor_type)
    assert fmt.quantize is not None
    blocks = fmt.quantize(weights[..., None])
    return blocks.view(np.uint8).reshape(len(weights), -1), fmt.dequantize(blocks)[..., 0].astype(np.float32)


def pack(run_kernel: RunKernel, rows: Bytes, tensor_type: TensorType, n_in: int, n_threads: int = 1) -> Bytes:
    packing = packing_of(tensor_type)
    packed = np.full((-(-len(rows) // 16), packing.group_bytes(n_in)), 0xAA, np.uint8)
    run_kernel(f"{packing.module}.pack", argument_block(
        PACK, source=rows.ctypes.data, packed=packed.ctypes.data, n_out=len(rows), n_in=n_in,
        row_bytes=rows.shape[1], group_bytes=packing.group_bytes(n_in)), n_threads)
    return packed


def multiply(run_kernel: RunKernel, packed: Bytes, tensor_type: TensorType, n_out: int, x: Float32,
             bias: Float32 | None = None, residual: Float32 | None = None, n_threads: int = 1) -> Float32:
    """x @ weight.T; memory behind the output must stay as it was."""
    room = np.full(len(x) * n_out + 16, 1234.5, np.float32)
    run_kernel(f"{packing_of(tensor_type).module}.linear", argument_block(
        FLOAT_LINEAR, weight=packed.ctypes.data, group_bytes=packed.shape[1], n_out=n_out, n_in=x.shape[1],
        x=x.ctypes.data, out=room.ctypes.data, bias=0 if bias is None else bias.ctypes.data,
        residual=0 if residual is None else residual.ctypes.data, n_rows=STEP.n_tokens),
        n_threads, n_tokens=len(x))
    assert (room[-16:] == 1234.5).all()
    return room[:-16].reshape(len(x), n_out)


def stated_order(weights: Float32, x: Float32) -> Float32:
    """The canonical order of float_linear.py, for all outputs at once."""
    acc = np.zeros((4, len(x), len(weights)), np.float32)
    for k in range(x.shape[1]):
        acc[k % 4] = fma(weights[None, :, k], x[:, k, None], acc[k % 4])
    result: Float32 = (acc[0] + acc[2]) + (acc[1] + acc[3])
    return result


def normal(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("tensor_type", TYPES)
def test_hand_made_product(run_kernel: RunKernel, tensor_type: TensorType) -> None:
    """(1, 2, 3) . (4, 5, 6) = 32, then bias 0.5 and residual 100."""
    rows, _ = stored(np.array([[4, 5, 6], [1, 0, 0]], np.float32), tensor_type)
    packed = pack(run_kernel, rows, tensor_type, 3)
    x = np.array([[1, 2, 3]], np.float32)
    bias, residual = np.array([0.5, -1], np.float32), np.array([[100, 200]], np.float32)
    assert multiply(run_kernel, packed, tensor_type, 2, x).tolist() == [[32, 1]]
    assert multiply(run_kernel, packed, tensor_type, 2, x, bias, residual).tolist() == [[132.5, 200]]


@pytest.mark.parametrize("tensor_type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_packed_groups_are_columns_of_16(run_kernel: RunKernel, tensor_type: TensorType,
                                         shape: tuple[int, int]) -> None:
    """Column k of a group holds weight k of its 16 rows; missing rows are zeros."""
    rows, _ = stored(normal(*shape), tensor_type)
    size = rows.shape[1] // shape[1]
    numbers = rows.reshape(*shape, size)
    padded = np.zeros((-(-shape[0] // 16) * 16, shape[1], size), np.uint8)
    padded[:shape[0]] = numbers
    expected = padded.reshape(-1, 16, shape[1], size).transpose(0, 2, 1, 3)
    for n_threads in (1, 2):
        packed = pack(run_kernel, rows, tensor_type, shape[1], n_threads)
        np.testing.assert_array_equal(packed.reshape(expected.shape), expected)


@pytest.mark.parametrize("tensor_type", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1e-4, 1.0, 1e4])
def test_product_has_the_bits_of_the_stated_order(run_kernel: RunKernel, tensor_type: TensorType,
                                                  shape: tuple[int, int], size: float) -> None:
    """Any number of rows and columns, with or without a bias and a residual."""
    n_out, n_in = shape
    rows, weights = stored(normal(*shape) * np.float32(size), tensor_type)
    packed = pack(run_kernel, rows, tensor_type, n_in)
    x, bias, residual = normal(6, n_in, seed=1), normal(n_out, seed=2), normal(6, n_out, seed=3)
    expected = stated_order(weights, x)
    np.testing.assert_array_equal(multiply(run_kernel, packed, tensor_type, n_out, x), expected)
    np.testing.assert_array_equal(multiply(run_kernel, packed, tensor_type, n_out, x, bias, residual),
                                  (expected + bias) + residual)


@pytest.mark.parametrize("tensor_type", TYPES)
def test_product_is_close_to_float64(run_kernel: RunKernel, tensor_type: TensorType) -> None:
    """Within 1e-6 of the sum of the terms' sizes."""
    rows, weights = stored(normal(40, 3001), tensor_type)
    x = normal(3, 3001, seed=1)
    result = multiply(run_kernel, pack(run_kernel, rows, tensor_type, 3001), tensor_type, 40, x)
    exact = x.astype(np.float64) @ weights.T.astype(np.float64)
    assert (np.abs(result - exact) <= 1e-6 * (np.abs(x) @ np.abs(weights).T)).all()


@pytest.mark.parametrize("tensor_type", TYPES)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_a_row_does_not_depend_on_its_company(run_kernel: RunKernel, tensor_type: TensorType, n_threads: int) -> None:
    """1 to 37 rows, in any number of threads, have the bits of each row alone."""
    rows, _ = stored(normal(83, 130), tensor_type)
    packed = pack(run_kernel, rows, tensor_type, 130)
    x = normal(37, 130, seed=1)
    alone = np.concatenate([multiply(run_kernel, packed, tensor_type, 83, x[i: i + 1]) for i in range(37)])
    for n_rows in (1, 2, 3, 4, 5, 16, 17, 19, 37):
        together = multiply(run_kernel, packed, tensor_type, 83, x[:n_rows], n_threads=n_threads)
        np.testing.assert_array_equal(together, alone[:n_rows])


def test_subnormal_and_infinite_weights_keep_their_value(run_kernel: RunKernel) -> None:
    """F16's smallest number is 2^-24; infinity stays infinity on every level."""
    rows, _ = stored(np.array([[2.0**-24], [-(2.0**-14)], [np.inf], [65504]], np.float32), TensorType.F16)
    packed = pack(run_kernel, rows, TensorType.F16, 1)
    result = multiply(run_kernel, packed, TensorType.F16, 4, np.array([[2.0]], np.float32))
    assert result.tolist() == [[2.0**-23, -(2.0**-13), np.inf, 131008]]
