"""Files that no model can be built from are refused with the name of what is wrong."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggpy.backends.reference import evaluate
from ggpy.errors import ConfigError, GgpyError, GGUFError, UnsupportedModelError
from ggpy.gguf import GGUFFile, GGUFWriter
from ggpy.models import build_model
from tests.models.arch_data import ArchModel

Load = Callable[[str], ArchModel]


def changed(source: Path, folder: Path, keys: Mapping[str, Any] | None = None,
            tensors: Mapping[str, Any] | None = None) -> GGUFFile:
    """A copy of a model with some keys and tensors replaced or added; None removes one."""
    old = GGUFFile(source)
    writer = GGUFWriter(folder / "changed.gguf")
    for key, value in {**old.metadata, **(keys or {})}.items():
        if value is not None:
            writer.add(key, value)
    tensors = tensors or {}
    for name, tensor in old.tensors.items():
        if name not in tensors:
            writer.add_tensor(name, tensor.rows(), tensor.type, tensor.shape)
    for name, values in tensors.items():
        if values is not None:
            writer.add_tensor(name, values)
    writer.write()
    return GGUFFile(writer.path)


@pytest.mark.parametrize(("key", "value", "message"), [
    ("block_count", None, r"'llama.block_count': it is missing, expected an integer from 1 to 1,024"),
    ("block_count", 0, r"'llama.block_count': found '0', expected an integer from 1"),
    ("block_count", 3, r"tensor 'blk.2.attn_norm.weight' is missing, expected one of shape \(48,\)"),
    ("embedding_length", -48, r"'llama.embedding_length': found '-48'"),
    ("embedding_length", "48", r"'llama.embedding_length': found '48', expected an integer"),
    ("embedding_length", 64, r"'llama.attention.key_length': it is missing, expected a head size, since embedding"),
    ("attention.head_count", True, r"'llama.attention.head_count': found 'True', expected an integer"),
    ("attention.head_count", [3, 3, 3], r"expected an integer from 1 to 4,096, or a list of 2 of them"),
    ("attention.head_count_kv", 2, r"layer 0 has 2 key/value heads for 3 query heads; expected a divisor"),
    ("attention.layer_norm_rms_epsilon", float("nan"), r"found 'nan', expected a number from 0 to 1"),
    ("rope.dimension_count", 7, r"expected an even number of at most 16, the size of a head"),
    ("rope.freq_base", 0.0, r"'llama.rope.freq_base': found '0.0', expected a number from 1.001"),
    ("rope.scaling.type", "su", r"'su'; expected none, linear, yarn or longrope"),
    ("feed_forward_length", 95, r"tensor 'blk.0.ffn_gate.weight': found shape \(96, 48\), expected \(95, 48\)"),
    ("expert_count", 4, r"llama.expert_used_count is 0; expected 1 to 4"),
])
def test_bad_metadata_is_named(key: str, value: Any, message: str, arch_model: Load, tmp_path: Path) -> None:
    """The message has the key or tensor, what was found and what was expected."""
    gguf = changed(arch_model("llama").path, tmp_path, {f"llama.{key}": value})
    with pytest.raises((GGUFError, UnsupportedModelError), match=message):
        build_model(gguf)


@pytest.mark.parametrize(("name", "data", "message"), [
    ("token_embd.weight", None, r"'token_embd.weight' is missing; expected \(n_vocab, n_embd\)"),
    ("output_norm.weight", None, r"tensor 'output_norm.weight' is missing, expected one of shape \(48,\)"),
    ("output_norm.weight", np.zeros(47, np.float32), r"'output_norm.weight': found shape \(47,\), expected \(48,\)"),
    ("blk.1.attn_k.weight", np.zeros((48, 16), np.float32), r"found shape \(48, 16\), expected \(16, 48\)"),
    ("blk.1.attn_k.weight", np.zeros((1, 16, 48), np.float32), None),
])
def test_bad_tensors_are_named(name: str, data: Any, message: str | None, arch_model: Load, tmp_path: Path) -> None:
    """Shapes must be the expected ones; only leading dimensions of 1 make no difference."""
    gguf = changed(arch_model("llama").path, tmp_path, tensors={name: data})
    if message is None:
        assert build_model(gguf).arch == "llama"
        return
    with pytest.raises(GGUFError, match=message):
        build_model(gguf)


def test_unknown_architecture_lists_the_known_ones(arch_model: Load, tmp_path: Path) -> None:
    """An architecture without a file here is refused by name."""
    gguf = changed(arch_model("llama").path, tmp_path, {"general.architecture": "megabyte"})
    with pytest.raises(UnsupportedModelError, match=r"'megabyte' is not supported; expected one of .*llama.*qwen3"):
        build_model(gguf)


def test_more_tokens_than_embeddings_are_refused(arch_model: Load, tmp_path: Path) -> None:
    """A token id that the embedding has no row for must never reach a kernel."""
    gguf = changed(arch_model("llama").path, tmp_path, {"tokenizer.ggml.tokens": ["x"] * 281})
    with pytest.raises(GGUFError, match=r"281 tokens but 'token_embd\.weight' has only 280 rows"):
        build_model(gguf)


def test_learned_positions_bound_the_context(arch_model: Load) -> None:
    """GPT-2 has a row per position; a longer context is refused before it can read past them."""
    gguf = GGUFFile(arch_model("gpt2").path)
    assert build_model(gguf, 128).hparams.n_ctx_train == 128
    with pytest.raises(ConfigError, match="n_ctx=129: gpt2 has learned positions for 128 tokens"):
        build_model(gguf, 129)


HPARAM_KEYS = [
    "block_count", "embedding_length", "context_length", "feed_forward_length", "attention.head_count",
    "attention.head_count_kv", "attention.key_length", "attention.value_length", "attention.layer_norm_rms_epsilon",
    "attention.layer_norm_epsilon", "attention.sliding_window", "attention.sliding_window_pattern", "attention.scale",
    "attn_logit_softcapping", "final_logit_softcapping", "rope.dimension_count", "rope.freq_base", "rope.freq_base_swa",
    "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length", "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.scaling.yarn_log_multiplier",
    "rope.dimension_sections", "rope.scaling.finetuned", "attention.temperature_scale", "expert_count",
    "expert_used_count", "expert_feed_forward_length", "expert_shared_feed_forward_length", "expert_shared_count",
    "expert_weights_scale", "leading_dense_block_count", "embedding_scale", "residual_scale", "logit_scale",
    "use_parallel_residual",
]
VALUES = st.one_of(
    st.sampled_from([0, 1, 2, 3, 16, 48, 255, 1 << 31, (1 << 63) - 1, -1]), st.integers(-(1 << 63), 1 << 63),
    st.floats(width=32), st.booleans(), st.sampled_from(["", "none", "linear", "yarn", "longrope", "x"]),
    st.lists(st.integers(-1, 64), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=8),
    st.lists(st.floats(width=32), min_size=1, max_size=4), st.just(["a", "b"]), st.none())


@pytest.mark.parametrize("name", ["llama_rope_yarn", "mistral3_temp", "gemma2", "gemma3", "phi3_longrope", "granitemoe",
                                  "deepseek", "gpt-oss", "glm4", "gpt2", "gptneox"])
@settings(max_examples=25, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(values=st.dictionaries(st.sampled_from(HPARAM_KEYS), VALUES, min_size=1, max_size=3))
def test_any_metadata_gives_a_model_or_an_error_of_ours(name: str, values: dict[str, Any], arch_model: Load,
                                                         tmp_path: Path) -> None:
    """No value of any type in any key leads to another exception, while building or when the model runs."""
    source = arch_model(name).path
    arch = GGUFFile(source).metadata.get_str("general.architecture")
    gguf = changed(source, tmp_path, {f"{arch}.{key}": value for key, value in values.items()})
    try:
        model = build_model(gguf)
    except GgpyError:
        return
    with np.errstate(all="ignore"):      # a scale of 1e6 may overflow
        outputs = evaluate(model.graph, [1, 2, 3])
    assert outputs["logits"].shape == (3, 280)
