"""Files of adapters: what they hold, and what is refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from ggpy.errors import GgpyError, GGUFError, UnsupportedModelError
from ggpy.gguf import GGUFFile
from ggpy.models import build_model
from ggpy.models.adapters import read_adapter
from tests.models.adapter_data import finished, random_factors, write_adapter
from tests.models.arch_data import ArchModel

Load = Callable[[str], ArchModel]
Q = "blk.0.attn_q.weight"


def test_a_fused_matrix_is_adapted_in_its_parts(arch_model: Load, tmp_path: Path) -> None:
    """Each with its own rows of B; the factor is alpha / rank."""
    model = arch_model("phi3")
    factors = random_factors(model, ("blk.0.attn_qkv.weight",))
    a, b = factors["blk.0.attn_qkv.weight"]
    path = write_adapter(tmp_path / "a.gguf", factors, alpha=6, arch="phi3", task_name="sums", prompt_prefix="Add: ")
    adapter = read_adapter(path, build_model(GGUFFile(model.path)))
    assert (adapter.task_name, adapter.prompt_prefix) == ("sums", "Add: ")
    parts = list(adapter.linear.values())
    assert np.array_equal(np.concatenate([part.b for part in parts]), 3 * b)
    assert all(np.array_equal(part.a, a) for part in parts)
    assert len(parts) == 3


def test_without_an_alpha_the_factor_is_one(arch_model: Load, tmp_path: Path) -> None:
    """As in llama.cpp."""
    model = arch_model("llama")
    factors = random_factors(model, (Q,))
    adapter = read_adapter(write_adapter(tmp_path / "a.gguf", factors, alpha=0), build_model(GGUFFile(model.path)))
    assert np.array_equal(adapter.linear[Q].b, factors[Q][1])


ONES = np.ones((2, 48), np.float32)


@pytest.mark.parametrize(("tensors", "options", "message", "kind"), [
    ({}, {"general_type": "model"}, "key general.type: found 'model', expected 'adapter'", GGUFError),
    ({}, {"adapter_type": "dora"}, "key adapter.type: found 'dora', expected 'lora'", GGUFError),
    ({}, {"arch": "qwen2"}, "key general.architecture: found 'qwen2', expected 'llama'; does the adap", GGUFError),
    ({"blk.9.attn_q.weight": (ONES, ONES.T)}, {}, "tensor 'blk.9.attn_q.weight': the model has no such", GGUFError),
    ({Q: (ONES[:, :9], ONES.T)}, {}, r"attn_q.weight.lora_a': found shape \(2, 9\), expected \(2, 48\)", GGUFError),
    ({Q: (ONES, ONES.T[:9])}, {}, r"attn_q.weight.lora_b': found shape \(9, 2\), expected \(48, 2\)", GGUFError),
    ({Q: (ONES, ONES)}, {}, r"attn_q.weight.lora_b': found shape \(2, 48\), expected \(48, 2\)", GGUFError),
    ({"token_embd.weight": (ONES, ONES.T)}, {}, r"token_embd.weight.lora_a': found shape \(2, 48\), exp", GGUFError),
])
def test_a_file_that_does_not_fit_is_refused(tensors: dict[str, Any], options: dict[str, Any], message: str,
                                             kind: type[GgpyError], arch_model: Load, tmp_path: Path) -> None:
    """With what was found and what was expected."""
    model = build_model(GGUFFile(arch_model("llama").path))
    with pytest.raises(kind, match=message):
        read_adapter(write_adapter(tmp_path / "a.gguf", tensors, **options), model)


def test_adapters_of_experts_are_refused(arch_model: Load, tmp_path: Path) -> None:
    """As what ggpy does not have."""
    model = arch_model("llama_moe")
    shape = GGUFFile(model.path).tensors["blk.0.ffn_up_exps.weight"].shape
    factors = np.ones((shape[0], 2, shape[2]), np.float32), np.ones((shape[0], shape[1], 2), np.float32)
    path = write_adapter(tmp_path / "a.gguf", {"blk.0.ffn_up_exps.weight": factors})
    with pytest.raises(UnsupportedModelError, match=r"ffn_up_exps.weight': ggpy has no adapters of experts"):
        read_adapter(path, build_model(GGUFFile(model.path)))


def test_a_factor_without_the_other_is_refused(arch_model: Load, tmp_path: Path) -> None:
    """It names the missing one."""
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "llama")
    writer.add_string("general.type", "adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_tensor(f"{Q}.lora_b", ONES.T)
    finished(writer, tmp_path / "a.gguf")
    with pytest.raises(GGUFError, match=r"its other factor, blk.0.attn_q.weight.lora_a, is missing"):
        read_adapter(tmp_path / "a.gguf", build_model(GGUFFile(arch_model("llama").path)))
