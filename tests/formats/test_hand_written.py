"""Blocks written by hand, weights worked out on paper."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.formats import dequantize, get_format, quantize
from ggpy.gguf.types import TensorType

F16_HALF, F16_QUARTER, F16_ONE, F16_MINUS_TWO = b"\x00\x38", b"\x00\x34", b"\x00\x3c", b"\x00\xc0"


def weights(data: bytes, tensor_type: TensorType) -> NDArray[np.float32]:
    """Weights of one block."""
    assert len(data) == get_format(tensor_type).block.itemsize
    return dequantize(np.frombuffer(data, np.uint8), tensor_type)


def test_q4_0_counts_from_minus_8() -> None:
    """w = d (q - 8); low halves are weights 0..15, high halves 16..31."""
    w = weights(F16_HALF + bytes([0xF0, 0x19]) + b"\x88" * 14, TensorType.Q4_0)
    assert (w[0], w[16], w[1], w[17]) == (-4.0, 3.5, 0.5, -3.5)
    assert not w[2:16].any()
    assert not w[18:].any()


def test_q4_1_counts_from_its_minimum() -> None:
    """w = d q + m."""
    w = weights(F16_HALF + F16_MINUS_TWO + bytes([0xF4]) + b"\x00" * 15, TensorType.Q4_1)
    assert (w[0], w[16], w[1]) == (0.0, 5.5, -2.0)


def test_q5_0_has_its_fifth_bits_apart() -> None:
    """w = d (q - 16) with bit i of `qh` on top of weight i."""
    w = weights(F16_ONE + bytes([0b10, 0, 1, 0]) + bytes([0x21, 0x03]) + b"\x00" * 14, TensorType.Q5_0)
    assert (w[0], w[1], w[16], w[17]) == (1 - 16, 16 + 3 - 16, 16 + 2 - 16, -16)


def test_q8_0_is_scale_times_byte() -> None:
    """w = d q, q signed."""
    w = weights(F16_QUARTER + bytes([1, 0xFF, 0x7F, 0x80]) + b"\x00" * 28, TensorType.Q8_0)
    assert w[:4].tolist() == [0.25, -0.25, 31.75, -32.0]
    assert not w[4:].any()


def test_q4_k_scales_and_minimums_of_both_kinds() -> None:
    """Run 0 has scale 3 and minimum 2 in plain sight; run 4 has 33 = 2|1 and 17 = 1|1, each out of two bytes."""
    scales = bytes([3 | 2 << 6, 0, 0, 0, 2 | 1 << 6, 0, 0, 0, 1 | 1 << 4, 0, 0, 0])
    qs = bytearray(128)
    qs[0] = 0x5A        # weight 0: 10, weight 32: 5
    qs[64] = 0x0F       # weight 128: 15
    w = weights(F16_HALF + F16_QUARTER + scales + bytes(qs), TensorType.Q4_K)
    assert w[0] == 0.5 * 3 * 10 - 0.25 * 2
    assert w[1] == -0.25 * 2
    assert w[32] == 0                        # scale 0, minimum 0
    assert w[128] == 0.5 * 33 * 15 - 0.25 * 17
    assert w[129] == -0.25 * 17
    assert not w[160:].any()


def test_q6_k_puts_four_and_two_bits_together() -> None:
    """w = d scale (q - 32); weight 64's low bits share a byte with weight 0's, its high bits are the third pair."""
    ql, qh, scales = bytearray(128), bytearray(64), bytearray(16)
    ql[0], qh[0] = 0xA5, 0b00_10_00_11       # weight 0: 5 | 3 << 4 = 53; weight 64: 10 | 2 << 4 = 42
    scales[0], scales[4] = 2, 0xFF           # 2 for weights 0..15, -1 for weights 64..79
    w = weights(bytes(ql + qh + scales) + F16_HALF, TensorType.Q6_K)
    assert (w[0], w[64]) == (0.5 * 2 * (53 - 32), 0.5 * -1 * (42 - 32))
    assert w[1] == 0.5 * 2 * -32


def test_mxfp4_is_a_power_of_two_times_e2m1() -> None:
    """e = 128 means 2; the codes 0..7 are 0, 0.5, 1, 1.5, 2, 3, 4, 6 and 8..15 their negatives."""
    w = weights(bytes([128]) + bytes([0x70, 0xF1, 0x92]) + b"\x00" * 13, TensorType.MXFP4)
    assert (w[0], w[16]) == (0.0, 12.0)
    assert (w[1], w[17]) == (1.0, -12.0)
    assert (w[2], w[18]) == (2.0, -1.0)


def test_nvfp4_has_a_scale_for_each_16_weights() -> None:
    """Scale codes 0x38 = 1, 0x41 = 2.25, 0x01 = 2**-9 and 0x7F (not a number) = 0; the code 7 is 6, 15 is -6."""
    qs = bytes([0xF7] + [0] * 7) * 4         # weight 0 of each sixteen: 6, weight 8: -6
    w = weights(bytes([0x38, 0x41, 0x01, 0x7F]) + qs, TensorType.NVFP4)
    assert w[[0, 16, 32, 48]].tolist() == [6.0, 13.5, 6 * 2.0**-9, 0.0]
    assert w[[8, 24, 40]].tolist() == [-6.0, -13.5, -6 * 2.0**-9]


def test_q1_0_is_a_sign() -> None:
    """Set bits are +d, clear ones -d, lowest bit first."""
    w = weights(F16_HALF + bytes([0b101]) + b"\x00" * 15, TensorType.Q1_0)
    assert w[:4].tolist() == [0.5, -0.5, 0.5, -0.5]
    assert (w[4:] == -0.5).all()


def test_activation_blocks_are_scale_times_byte() -> None:
    """Q8_1 and Q8_K store float32 scales; their sums are redundant and not looked at."""
    scale, junk = np.float32(0.1).tobytes(), b"\xAA"
    q8_1 = weights(scale + junk * 4 + bytes([3, 0x80]) + b"\x00" * 30, TensorType.Q8_1)
    q8_k = weights(scale + bytes([3, 0x80]) + b"\x00" * 254 + junk * 32, TensorType.Q8_K)
    assert q8_1[:2].tolist() == q8_k[:2].tolist() == [np.float32(0.1) * np.float32(3), np.float32(-12.8)]


@pytest.mark.parametrize(
    ("name", "dtype"), [("F64", "<f8"), ("I8", "i1"), ("I16", "<i2"), ("I32", "<i4"), ("I64", "<i8")]
)
def test_plain_numbers_become_float32(name: str, dtype: str) -> None:
    """Integers and doubles are converted, nothing else."""
    data = np.array([[1, -2, 100]], dtype).view(np.uint8)
    assert dequantize(data, TensorType[name]).tolist() == [[1.0, -2.0, 100.0]]


def test_q8_0_rounds_just_under_a_half_down() -> None:
    """0.49999997 is below a half; adding 0.5 in float32 first would make it 1."""
    x = np.zeros((1, 32), np.float32)
    x[0, :3] = 127, 0.49999997, -0.5
    assert quantize(x, TensorType.Q8_0).view(np.int8)[0, 2:5].tolist() == [127, 0, -1]
