"""Rows of weights by number, by kernels."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.formats import dequantize, get_format
from ggpy.gguf import TensorType
from ggpy.kernels.cpu.arguments import EMBED, argument_block
from ggpy.kernels.cpu.packing import PACKINGS
from ggpy.kernels.cpu.step import STEP

RunKernel = Callable[..., None]
N_WEIGHTS, N_ROWS = 768, 7


def random_rows(tensor_type: TensorType) -> npt.NDArray[np.uint8]:
    """Random bytes (N_ROWS, row_bytes) whose scales are finite."""
    block = get_format(tensor_type).block
    n_blocks = N_WEIGHTS // get_format(tensor_type).block_size
    rng = np.random.default_rng(int(tensor_type))
    if block.names is None or "d" not in block.names:
        values: npt.NDArray[Any] = rng.normal(size=(N_ROWS, N_WEIGHTS)).astype(np.float32)
        if tensor_type is TensorType.BF16:
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(np.float16 if tensor_type is TensorType.F16 else values.dtype).view(np.uint8)
    rows = rng.integers(0, 256, (N_ROWS, n_blocks * block.itemsize), np.uint8)
    for name in ("d", "dmin"):
        if name in block.names:
            rows.view(block)[name] = rng.normal(scale=0.1, size=(N_ROWS, n_blocks)).astype(np.float16)
    return rows


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 25.298221])
@pytest.mark.parametrize("tensor_type", [t for t, packing in PACKINGS.items() if packing.embeds], ids=lambda t: t.name)
def test_rows_have_the_bits_that_dequantize_gives(
    run_kernel: RunKernel, tensor_type: TensorType, scale: float, n_threads: int
) -> None:
    """Times the factor, rounded once more."""
    rows, tokens = random_rows(tensor_type), np.array([3, 0, 6, 3], np.int32)
    out = np.zeros((4, N_WEIGHTS), np.float32)
    block = argument_block(EMBED, weight=rows.ctypes.data, row_bytes=rows.shape[1], width=N_WEIGHTS,
                           index=STEP.tokens, scale=scale, out=out.ctypes.data)
    run_kernel(f"{PACKINGS[tensor_type].module}.embed", block, n_threads, n_tokens=4, tokens=tokens.ctypes.data)
    expected = dequantize(rows, tensor_type)[tokens] * np.float32(scale)
    assert np.array_equal(out.view(np.uint32), expected.view(np.uint32))


def test_without_an_index_each_row_is_the_first(run_kernel: RunKernel) -> None:
    """As for the types of tokens that encoders add."""
    weights, out = np.arange(32, dtype=np.float32).reshape(2, 16), np.ones((3, 16), np.float32)
    block = argument_block(EMBED, weight=weights.ctypes.data, row_bytes=64, width=16, index=0, scale=2.0,
                           out=out.ctypes.data)
    run_kernel("f32.embed", block, n_tokens=3)
    assert out.tolist() == [[2.0 * i for i in range(16)]] * 3
