"""The integer statement w = d * scale * q - dm * min, that integer kernels are tested against."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.formats import FORMATS, dequantize, get_format, integers
from ggpy.gguf.types import TensorType

STORED = [t for t, f in FORMATS.items() if f.integers and t not in (TensorType.Q8_1, TensorType.Q8_K)]


def finite_rows(tensor_type: TensorType) -> NDArray[np.uint8]:
    """Three rows of 512 weights or more, random bytes with random finite f16 scales."""
    fmt = get_format(tensor_type)
    rng = np.random.default_rng(tensor_type)
    n_blocks = max(2, 512 // fmt.block_size)
    blocks = rng.integers(0, 256, (3, n_blocks * fmt.block.itemsize), dtype=np.uint8).view(fmt.block)
    for name in fmt.block.names or ():
        if fmt.block[name] == np.dtype("<f2"):
            blocks[name] = rng.normal(0, 10.0 ** rng.uniform(-7, 3, blocks.shape))
    if tensor_type == TensorType.IQ1_M:
        blocks["scales"][..., 3] &= 0x3FFF      # an f16 below 2: the exponent cannot be all ones
    if tensor_type == TensorType.MXFP4:
        blocks["e"] = np.minimum(blocks["e"], 250)
    return blocks.view(np.uint8)


@pytest.mark.parametrize("tensor_type", STORED, ids=lambda t: t.name)
def test_integers_say_the_weights_with_one_rounding(tensor_type: TensorType) -> None:
    """Both products are exact in float32; only their difference rounds, and the result is what dequantize gives."""
    rows = finite_rows(tensor_type)
    stated = integers(rows, tensor_type)
    n = rows.shape[1] // tensor_type.block_bytes * tensor_type.block_size
    assert stated.q.shape == (3, n // 16, 16)
    assert stated.scale.shape == (3, n // 16)
    assert stated.d.shape == (3, n // 32)

    d = stated.d.astype(np.float64).repeat(2, axis=-1)
    product = (d * stated.scale)[..., None] * stated.q
    np.testing.assert_array_equal(product.astype(np.float32), product)
    if stated.min is not None and stated.dm is not None:
        assert stated.min.shape == (3, n // 16)
        minimum = stated.dm.astype(np.float64).repeat(2, axis=-1) * stated.min
        np.testing.assert_array_equal(minimum.astype(np.float32), minimum)
        product -= minimum[..., None]
    np.testing.assert_array_equal(product.astype(np.float32).reshape(3, n), dequantize(rows, tensor_type))


@pytest.mark.parametrize("tensor_type", STORED, ids=lambda t: t.name)
def test_scaled_sums_over_32_weights_are_exact_in_float32(tensor_type: TensorType) -> None:
    """A sum of scale * q * x over 32 weights stays below 2**24 for |x| <= 127, in float32 no bit is lost.

    NVFP4 has wider scales: there each half of the sum is exact, being a 16-bit integer times a 4-bit one times a power
    of two.
    """
    stated = integers(finite_rows(tensor_type), tensor_type)
    halves = np.abs(stated.q.astype(np.int64)).sum(axis=-1) * 127 * np.abs(stated.scale)
    if tensor_type == TensorType.NVFP4:
        np.testing.assert_array_equal(halves.astype(np.float32), halves)
    else:
        assert halves.reshape(3, -1, 2).sum(axis=-1).max() < 2**24


def test_the_largest_q6_k_sum_still_fits() -> None:
    """32 weights of q = -32 under scales of -128 against activations of 127: 16,646,144 of 16,777,216."""
    block = np.zeros((1, 210), np.uint8)
    block[0, 192:208] = 0x80
    stated = integers(block, TensorType.Q6_K)
    halves = (stated.q.astype(np.int64) * 127).sum(axis=-1) * stated.scale
    assert halves.reshape(1, 8, 2).sum(axis=-1).tolist() == [[16_646_144] * 8]


def test_integers_of_a_hand_written_q4_k_block() -> None:
    """Scales and minimums stand for 32 weights each, so both halves of a run repeat them."""
    block = np.zeros(144, np.uint8)
    block[:16] = [0x00, 0x38, 0x00, 0x34, 3, 5, 0, 0, 2, 7, 0, 0, 0, 0, 0, 0]
    block[16] = 0x5A
    stated = integers(block, TensorType.Q4_K)
    assert stated.min is not None
    assert stated.dm is not None
    assert stated.q[:3, 0].tolist() == [10, 0, 5]
    assert stated.scale[:6].tolist() == [3, 3, 5, 5, 0, 0]
    assert stated.min[:6].tolist() == [2, 2, 7, 7, 0, 0]
    assert stated.d.tolist() == [0.5] * 8
    assert stated.dm.tolist() == [0.25] * 8


def test_blocks_are_joined_along_the_row() -> None:
    """Two Q8_0 blocks of a row have two scales, in order; d belongs to 32 weights, so there is one per block."""
    rows = np.zeros((1, 68), np.uint8)
    blocks = rows.view(get_format(TensorType.Q8_0).block)
    blocks["d"] = [[0.5, 2.0]]
    blocks["qs"][0, 1, 31] = -7
    stated = integers(rows, TensorType.Q8_0)
    assert stated.d.tolist() == [[0.5, 2.0]]
    assert stated.q[0, 3, 15] == -7
    assert stated.scale.tolist() == [[1, 1, 1, 1]]
    assert stated.min is None
