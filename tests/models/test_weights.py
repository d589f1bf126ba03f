"""Fused weights are split into views of the file."""

from collections.abc import Callable

import numpy as np

from ggpy.formats import dequantize
from ggpy.gguf import GGUFFile, TensorInfo, TensorType
from ggpy.models.weights import Weights, split_rows
from tests.models.arch_data import ArchModel


def test_parts_of_a_fused_weight_are_its_rows(arch_model: Callable[[str], ArchModel]) -> None:
    """attn_qkv (80, 48) of 3 query heads and 1 key/value head of 16."""
    fused = Weights(GGUFFile(arch_model("phi3").path)).layer(1).get("attn_qkv.weight", 80, 48)
    q, k, v = split_rows(fused, 48, 16, 16)
    whole = dequantize(fused.rows(), fused.type)
    assert (q.shape, k.shape, v.shape) == ((48, 48), (16, 48), (16, 48))
    assert k.name == "blk.1.attn_qkv.weight[48:64]"
    assert np.shares_memory(k.rows(), fused.rows())
    assert np.array_equal(np.concatenate([dequantize(part.rows(), part.type) for part in (q, k, v)]), whole)


def test_parts_of_a_fused_bias_are_its_values() -> None:
    """A bias (3,) in parts of 2 and 1."""
    bias = TensorInfo("b", TensorType.F32, (3,), 0, 0, np.array([1, 2, 3], "<f4").view(np.uint8))
    first, second = split_rows(bias, 2, 1)
    assert dequantize(first.rows(), first.type).ravel().tolist() == [1, 2]
    assert dequantize(second.rows(), second.type).ravel().tolist() == [3]


def test_a_vector_may_stand_for_a_matrix_of_one_row(arch_model: Callable[[str], ArchModel]) -> None:
    """The gate of a shared expert is (32,) in the file and (1, 32) to a linear."""
    layer = Weights(GGUFFile(arch_model("qwen2moe").path)).layer(0)
    assert layer.get("ffn_gate_inp_shexp.weight", 1, 32).shape == (1, 32)
