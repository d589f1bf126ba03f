"""Every format against the gguf package's own, bit for bit."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from ggpy.formats import FORMATS, dequantize
from ggpy.gguf.types import TensorType

QUANTISED = [t for t, f in FORMATS.items() if f.integers and t not in (TensorType.Q8_1, TensorType.Q8_K)]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("tensor_type", QUANTISED, ids=lambda t: t.name)
def test_random_bytes_decode_to_the_same_bits(tensor_type: TensorType) -> None:
    """Any byte pattern means what the gguf package says it means; NaN scales give NaN in both."""
    rows = np.random.default_rng(0).integers(0, 256, (3, 40 * FORMATS[tensor_type].block.itemsize), dtype=np.uint8)
    ours, theirs = dequantize(rows, tensor_type), gguf.quants.dequantize(rows, gguf.GGMLQuantizationType(tensor_type))
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(theirs))
    number = ~np.isnan(theirs)
    np.testing.assert_array_equal(ours[number].view(np.uint32), theirs[number].view(np.uint32))
