"""What all keys have in common, and that taking it off makes q8_0 precise."""

from collections.abc import Callable

import numpy as np
import pytest

from ggpy.backends.key_offset import key_offset
from ggpy.backends.reference import evaluate
from ggpy.gguf import GGUFFile
from ggpy.graph.ops import Attention, Graph
from ggpy.models import build_model
from tests.models.arch_data import ArchModel, load_wide_heads


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ArchModel:
    """Its keys have a bias of 1 in the dimensions that turn quickly and of 50 in those that hardly turn."""
    return load_wide_heads(tmp_path_factory.mktemp("wide"))


def graph_of(model: ArchModel) -> Graph:
    return build_model(GGUFFile(model.path)).graph


def attention_of(graph: Graph) -> Attention:
    return next(op for op in graph.nodes if isinstance(op, Attention))


def test_slow_dimensions_lose_their_bias_and_quick_ones_keep_it(model: ArchModel) -> None:
    """The pair that turns by a radian a token averages to nothing, the last one is nearly all there."""
    graph = graph_of(model)
    offset = key_offset(attention_of(graph))
    assert offset is not None
    assert offset.shape == (1, 64)
    assert np.abs(offset[0, :2]).max() < 0.01
    assert np.hypot(*offset[0, 62:]) > 0.98 * np.hypot(50, 50)


def test_scores_whose_zero_has_a_meaning_have_no_offset(model: ArchModel) -> None:
    """A softcap bends large scores more than small ones."""
    graph = graph_of(model)
    op = attention_of(graph)
    capped = Attention(inputs=op.inputs, width=op.width, layer=0, n_head=op.n_head, n_head_kv=op.n_head_kv,
                       head_dim_k=op.head_dim_k, head_dim_v=op.head_dim_v, scale=op.scale, softcap=30.0)
    assert key_offset(capped) is None


@pytest.mark.parametrize("name", ["qwen2", "phi2", "gpt2", "starcoder2", "stablelm", "llama_bias"])
def test_every_kind_of_bias_gives_an_offset(name: str, arch_model: Callable[[str], ArchModel]) -> None:
    """Biases of their own or parts of a fused one, with either kind of rope or none."""
    op = attention_of(graph_of(arch_model(name)))
    offset = key_offset(op)
    assert offset is not None
    assert offset.shape == (op.n_head_kv, op.head_dim_k)
    assert np.isfinite(offset).all()


def test_keys_without_a_bias_have_no_offset(arch_model: Callable[[str], ArchModel]) -> None:
    """Nothing is known about them before they are computed."""
    assert key_offset(attention_of(graph_of(arch_model("llama")))) is None


def test_the_offset_makes_q8_0_keys_precise(model: ArchModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits are several times nearer to those of exact keys than without it."""
    graph = graph_of(model)
    exact = evaluate(graph, model.tokens)["logits"]
    with_offset = evaluate(graph, model.tokens, cache_types=("q8_0", "f32"))["logits"]
    monkeypatch.setattr("ggpy.backends.reference.key_offset", lambda op: None)
    without = evaluate(graph, model.tokens, cache_types=("q8_0", "f32"))["logits"]
    assert np.abs(with_offset - exact).mean() < np.abs(without - exact).mean() / 2
