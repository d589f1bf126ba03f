"""Every format against the gguf package's own, bit for bit."""

from __future__ import annotations

from typing import Any

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.formats import FORMATS, dequantize, get_format, quantize
from ggpy.gguf.types import TensorType

pytestmark = pytest.mark.filterwarnings("ignore:(invalid value|overflow):RuntimeWarning")

THEIRS = {int(t) for t in gguf.quants._type_traits}
DECODED = [t for t in FORMATS if t in THEIRS]
ENCODED = [t for t, f in FORMATS.items() if f.quantize and t in THEIRS]

F16_SCALES = {                           # every kind of f16 a scale can be
    "zero": 0.0, "minus zero": -0.0, "one": 1.0, "negative": -0.37, "largest": 65504.0, "most negative": -65504.0,
    "smallest subnormal": 2.0**-24, "negative subnormal": -(2.0**-15), "infinite": np.inf,
}


def same_bits(ours: NDArray[np.float32], theirs: NDArray[np.float32]) -> None:
    """Equal bit for bit, where every NaN is as good as any other."""
    assert ours.dtype == theirs.dtype == np.float32
    number = ~np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), ~number)
    np.testing.assert_array_equal(ours[number].view(np.uint32), theirs[number].view(np.uint32))


def their_dequantize(rows: NDArray[np.uint8], tensor_type: TensorType) -> NDArray[np.float32]:
    weights: NDArray[np.float32] = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(tensor_type))
    return weights


def random_rows(tensor_type: TensorType, n_rows: int, n_blocks: int) -> NDArray[np.uint8]:
    """Rows of random bytes (n_rows, row_bytes)."""
    rng = np.random.default_rng(tensor_type)
    return rng.integers(0, 256, (n_rows, n_blocks * get_format(tensor_type).block.itemsize), dtype=np.uint8)


def test_every_type_that_gguf_decodes_is_here() -> None:
    """No type of the gguf package is missing; the only one here that it cannot decode is checked elsewhere."""
    assert {int(t) for t in gguf.GGMLQuantizationType} <= set(FORMATS)
    assert set(DECODED) == THEIRS


@pytest.mark.parametrize("tensor_type", FORMATS, ids=lambda t: t.name)
def test_blocks_have_the_size_that_gguf_says(tensor_type: TensorType) -> None:
    """Weights and bytes per block agree with the gguf package and with ggpy's reader."""
    fmt = get_format(tensor_type)
    sizes = (fmt.block_size, fmt.block.itemsize)
    assert sizes == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(tensor_type)]
    assert sizes == (tensor_type.block_size, tensor_type.block_bytes)


@pytest.mark.parametrize("tensor_type", DECODED, ids=lambda t: t.name)
def test_random_bytes_decode_to_the_same_bits(tensor_type: TensorType) -> None:
    """Any byte pattern means what the gguf package says it means; NaN scales give NaN in both."""
    rows = random_rows(tensor_type, 3, 40)
    same_bits(dequantize(rows, tensor_type), their_dequantize(rows, tensor_type))


@pytest.mark.parametrize("value", F16_SCALES.values(), ids=F16_SCALES.keys())
@pytest.mark.parametrize("tensor_type", DECODED, ids=lambda t: t.name)
def test_any_f16_scale_decodes_to_the_same_bits(tensor_type: TensorType, value: float) -> None:
    """Zero, negative, subnormal, largest and infinite scales, with random weights under them."""
    block = get_format(tensor_type).block
    rows = random_rows(tensor_type, 2, 5)
    blocks = rows.view(block)
    if tensor_type == TensorType.IQ1_M:      # its f16 scale lies in the top bits of four words
        quarters = np.float16(value).view(np.uint16) >> np.array([0, 4, 8, 12], np.uint16) & 15
        blocks["scales"] = blocks["scales"] & 0x0FFF | quarters << 12
    names = [n for n in block.names or () if block[n] == np.dtype("<f2")]
    for name in names:
        blocks[name] = value
    same_bits(dequantize(rows, tensor_type), their_dequantize(rows, tensor_type))


@pytest.mark.parametrize(("tensor_type", "field"), [(TensorType.MXFP4, "e"), (TensorType.NVFP4, "d")])
def test_every_scale_code_of_fp4_decodes_to_the_same_bits(tensor_type: TensorType, field: str) -> None:
    """All 256 codes of a one-byte scale, the subnormal and the infinite ones too."""
    blocks = random_rows(tensor_type, 1, 256).view(get_format(tensor_type).block)
    codes = np.arange(256, dtype=np.uint8)
    blocks[field] = codes if blocks[field].ndim == 2 else codes[:, None]
    rows = blocks.view(np.uint8)
    same_bits(dequantize(rows, tensor_type), their_dequantize(rows, tensor_type))


def interesting_weights() -> NDArray[np.float32]:
    """Rows of 1024 weights: normal, all kinds of special values, ties."""
    rng = np.random.default_rng(7)
    rows = rng.normal(0, 1, (12, 1024)).astype(np.float32)
    rows[1] = 0
    rows[2] = -0.0
    rows[3] = 1e-9
    rows[4] *= 1e4
    rows[5] = np.abs(rows[5])
    rows[6] = -np.abs(rows[6])
    rows[7, ::3] = 0
    rows[8] = np.linspace(-1, 1, 1024)
    rows[9] = rng.integers(-254, 255, 1024) / 2         # halves, exact after scaling where the largest is 127
    rows[9, ::32] = 127
    rows[10] = rng.choice(np.array([-1, -0.5, 0, 0.5, 1], np.float32), 1024)
    rows[11] *= 10.0 ** np.repeat(np.arange(-16, 16), 32) / 1e13
    return rows


@pytest.mark.parametrize("tensor_type", ENCODED, ids=lambda t: t.name)
def test_quantised_bytes_are_the_same(tensor_type: TensorType) -> None:
    """Every quantiser here makes the gguf package's bytes."""
    x = interesting_weights()
    theirs: NDArray[Any] = gguf.quants.quantize(x, gguf.GGMLQuantizationType(tensor_type))
    np.testing.assert_array_equal(quantize(x, tensor_type), theirs.view(np.uint8))


def test_bf16_rounds_as_gguf_does() -> None:
    """Ties go to even, infinities stay, NaNs stay NaN."""
    bits = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x7F800001, 0xFFFFFFFF,
                     0x00000001, 0x80008000], np.uint32)
    x = bits.view(np.float32)[None]
    theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType.BF16).view(np.uint8)
    np.testing.assert_array_equal(quantize(x, TensorType.BF16), theirs)
