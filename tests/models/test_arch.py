"""Every supported architecture gives llama.cpp's logits."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from ggpy.backends.reference import evaluate
from ggpy.gguf import GGUFFile
from ggpy.graph.ops import Attention, Linear, Rope
from ggpy.models import ARCHITECTURES, build_model
from tests.models.arch_data import DATA, ArchModel, arch_names
from tests.models.encoder_data import encoder_names

Load = Callable[[str], ArchModel]


@pytest.mark.parametrize("name", arch_names())
def test_logits_agree_with_llama_cpp_at_every_position(name: str, arch_model: Load) -> None:
    """Float32 arithmetic is within the model's tolerance everywhere."""
    model = arch_model(name)
    logits = evaluate(build_model(GGUFFile(model.path), model.n_ctx).graph, model.tokens)["logits"]
    assert logits.shape == model.logits.shape
    assert np.abs(logits - model.logits).max() <= model.tolerance


def test_every_architecture_has_a_model_to_test_it() -> None:
    """The registry names no architecture whose logits, or hidden states, nobody has compared."""
    models = json.loads((DATA / "models.json").read_text(encoding="utf-8"))["models"]
    encoders = {name.partition("_")[0] for name in encoder_names()}
    assert set(ARCHITECTURES) == {spec["arch"] for spec in models.values()} | encoders


def test_a_float16_cache_changes_little(arch_model: Load) -> None:
    """Keys and values rounded to float16 move logits, by less than 0.05."""
    model = arch_model("llama")
    graph = build_model(GGUFFile(model.path)).graph
    logits = evaluate(graph, model.tokens, cache_types=("f16", "f16"))["logits"]
    assert 1e-4 < np.abs(logits - model.logits).max() <= 0.05


def test_only_the_wanted_outputs_are_computed(arch_model: Load) -> None:
    """Outputs of chosen positions are those rows of all outputs; hidden states have the model's width."""
    model = arch_model("qwen2")
    graph = build_model(GGUFFile(model.path)).graph
    some = evaluate(graph, model.tokens, outputs=[3, 76])
    assert np.abs(some["logits"] - model.logits[[3, 76]]).max() <= model.tolerance
    assert some["hidden"].shape == (2, 48)


@pytest.mark.parametrize("name", ["llama", "phi3", "gpt2"])
def test_queries_keys_and_values_are_three_linears(name: str, arch_model: Load) -> None:
    """Fused weights are split into views, so that every attention reads three linears, the first two perhaps turned."""
    graph = build_model(GGUFFile(arch_model(name).path)).graph
    for op in graph.nodes:
        if isinstance(op, Attention):
            sources = [x.inputs[0] if isinstance(x, Rope) else x for x in op.inputs]
            assert all(isinstance(x, Linear) for x in sources)
            assert len({x.weight.offset for x in sources if isinstance(x, Linear)}) == 3
