"""Tensor types agree with the `gguf` package."""

import gguf
import numpy as np
import pytest

from ggpy.gguf import TensorInfo, TensorType, ValueType


def test_every_tensor_type_of_the_gguf_package_is_known_by_the_same_number() -> None:
    """Names and numbers are those of GGMLQuantizationType; a newer package may know more."""
    theirs = {t.name: t.value for t in gguf.GGMLQuantizationType}
    assert {t.name: t.value for t in TensorType}.items() <= theirs.items()


@pytest.mark.parametrize("type_", TensorType, ids=lambda t: t.name)
def test_block_sizes_agree_with_the_gguf_package(type_: TensorType) -> None:
    """Weights and bytes per block are those of GGML_QUANT_SIZES."""
    theirs = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(type_)]
    assert (type_.block_size, type_.block_bytes) == theirs


def test_value_types_agree_with_the_gguf_package() -> None:
    """Names and numbers are those of GGUFValueType."""
    assert {t.name: t.value for t in ValueType} == {t.name: t.value for t in gguf.GGUFValueType}


def test_sizes_of_a_tensor_follow_from_type_and_shape() -> None:
    """3 rows of 64 weights in Q8_0 are 3 rows of 2 blocks of 34 bytes."""
    file = np.arange(250, dtype=np.uint8)
    tensor = TensorInfo("w", TensorType.Q8_0, (3, 64), 10, 0, file)
    assert (tensor.n_elements, tensor.row_bytes, tensor.size_bytes) == (192, 68, 204)
    assert tensor.rows().shape == (3, 68)
    assert tensor.rows()[1, 0] == 10 + 68
    assert np.shares_memory(tensor.data, file)
