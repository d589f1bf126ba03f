"""Whole rows through the table of formats: shapes, slices and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ggpy.errors import GgpyError, UnsupportedModelError
from ggpy.formats import FORMATS, dequantize, get_format, integers, quantize, table
from ggpy.gguf.types import TensorType


def test_leading_axes_are_kept() -> None:
    """Expert weights are (n_expert, n_rows, row_bytes): every row decodes as it would alone."""
    rows = np.random.default_rng(0).integers(0, 100, (2, 3, 5 * 18), dtype=np.uint8)
    w = dequantize(rows, TensorType.Q4_0)
    assert w.shape == (2, 3, 160)
    np.testing.assert_array_equal(w[1, 2], dequantize(rows[1, 2], TensorType.Q4_0))


@pytest.mark.parametrize("tensor_type", [TensorType.Q8_0, TensorType.Q4_K, TensorType.BF16], ids=lambda t: t.name)
def test_slices_do_not_show(tensor_type: TensorType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoding and encoding in slices that do not divide the rows gives what one slice gives."""
    rows = np.random.default_rng(0).integers(0, 60, (3, 7 * tensor_type.block_bytes), dtype=np.uint8)
    whole = dequantize(rows, tensor_type)
    encoded = quantize(whole, TensorType.BF16)
    monkeypatch.setattr(table, "SLICE", 5 * tensor_type.block_size)
    np.testing.assert_array_equal(dequantize(rows, tensor_type), whole)
    np.testing.assert_array_equal(quantize(whole, TensorType.BF16), encoded)


@pytest.mark.parametrize("rows", [np.s_[::2], np.s_[:, ::-1, :], np.s_[:0], np.s_[:, :, :0]], ids=str)
def test_rows_may_be_views(rows: Any) -> None:
    """Every other row, rows backwards, no rows and empty rows."""
    data = np.random.default_rng(0).integers(0, 100, (4, 3, 34), dtype=np.uint8)
    expected = dequantize(data, TensorType.Q8_0)
    if data[rows].shape[-1] == 0:
        expected = expected[..., :0]
    np.testing.assert_array_equal(dequantize(data[rows], TensorType.Q8_0), expected[rows])


def test_bytes_that_are_no_whole_blocks_are_refused() -> None:
    """Both sizes are named."""
    with pytest.raises(GgpyError, match=r"a row of 35 bytes is no whole number of Q8_0 blocks of 34 bytes"):
        dequantize(np.zeros((2, 35), np.uint8), TensorType.Q8_0)


def test_rows_that_are_not_bytes_are_refused() -> None:
    """Weights handed to the decoder by mistake are not reinterpreted."""
    with pytest.raises(GgpyError, match=r"F32 rows are uint8 \(..., row_bytes\), not float32 \(4,\)"):
        dequantize(np.zeros(4, np.float32), TensorType.F32)


def test_weights_that_are_no_whole_blocks_are_refused() -> None:
    """576 weights are no multiple of a super-block of 256."""
    with pytest.raises(GgpyError, match=r"a row of 576 weights is no whole number of TQ1_0 blocks of 256 weights"):
        quantize(np.zeros((1, 576), np.float32), TensorType.TQ1_0)


def test_types_without_a_quantiser_are_refused() -> None:
    """The message lists what can be made."""
    with pytest.raises(UnsupportedModelError, match=r"cannot quantise to Q4_K; there are quantisers for: BF16 .*Q8_0"):
        quantize(np.zeros((1, 256), np.float32), TensorType.Q4_K)


def test_plain_numbers_have_no_integers() -> None:
    """F16 weights have no scale to take out."""
    with pytest.raises(UnsupportedModelError, match="F16 is not a quantised type"):
        integers(np.zeros((1, 4), np.uint8), TensorType.F16)


def test_an_unknown_type_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A type that the reader knows and this table does not is named, with those that are there."""
    monkeypatch.delitem(FORMATS, TensorType.Q5_K)
    with pytest.raises(UnsupportedModelError, match=r"tensor type Q5_K has no format here; supported: BF16 .*Q6_K"):
        get_format(TensorType.Q5_K)


def test_every_tensor_type_has_a_format() -> None:
    """What the reader can size, formats can decode."""
    assert set(FORMATS) == set(TensorType)


@pytest.mark.parametrize("name", ["Q4_0", "Q5_1", "Q8_0", "MXFP4", "TQ2_0"])
def test_quantising_decoded_weights_changes_nothing(name: str) -> None:
    """Weights that a format can represent come back as they were."""
    x = np.random.default_rng(3).normal(size=(2, 512)).astype(np.float32)
    once: NDArray[np.float32] = dequantize(quantize(x, TensorType[name]), TensorType[name])
    twice = dequantize(quantize(once, TensorType[name]), TensorType[name])
    np.testing.assert_allclose(twice, once, rtol=2e-3, atol=1e-6)
