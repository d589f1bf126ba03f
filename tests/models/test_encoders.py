"""Encoders give llama.cpp's hidden states and scores."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ggpy.backends.reference import evaluate
from ggpy.errors import ConfigError, GGUFError
from ggpy.gguf import GGUFFile
from ggpy.models import bert, build_model
from tests.models.arch_data import ArchModel
from tests.models.encoder_data import EncoderModel, encoder_names
from tests.models.test_build import changed

Load = Callable[[str], EncoderModel]


@pytest.mark.parametrize("name", encoder_names())
def test_hidden_states_and_scores_agree_with_llama_cpp(name: str, encoder_model: Load) -> None:
    """Float32 arithmetic is within the model's tolerance at every position; the score is that of the first token."""
    model = encoder_model(name)
    found = evaluate(build_model(GGUFFile(model.path), model.n_ctx).graph, model.tokens)
    assert np.abs(found["hidden"] - model.hidden).max() <= model.tolerance
    assert ("scores" in found) == (model.scores is not None)
    if model.scores is not None:
        assert np.abs(found["scores"][0] - model.scores).max() <= model.tolerance


def test_alibi_slopes_are_halfway_beyond_a_power_of_two() -> None:
    """Of 3 heads the first two have the slopes of 2 heads, the third the first one of 4."""
    assert bert.alibi_slopes(2) == (2**-4, 2**-8)
    assert bert.alibi_slopes(3) == (2**-4, 2**-8, 2**-2)


def test_a_bert_that_looks_back_only_is_refused(encoder_model: Load, tmp_path: Path) -> None:
    """The message names the key."""
    gguf = changed(encoder_model("bert").path, tmp_path, {"bert.attention.causal": True})
    with pytest.raises(GGUFError, match=r"'bert.attention.causal': found 'True', expected false"):
        build_model(gguf)


def test_learned_positions_bound_the_context(encoder_model: Load) -> None:
    """A context beyond them is refused; turned queries and keys have no end."""
    with pytest.raises(ConfigError, match="n_ctx=129: bert has learned positions for 128 tokens"):
        build_model(GGUFFile(encoder_model("bert").path), 129)
    assert not build_model(GGUFFile(encoder_model("nomic-bert").path), 129).hparams.causal


def test_a_qwen3_reranker_gives_probabilities(arch_model: Callable[[str], ArchModel], tmp_path: Path) -> None:
    """Of its classes, beside each other."""
    weight = np.random.default_rng(0).standard_normal((2, 48)).astype(np.float32)
    model = arch_model("qwen3")
    gguf = changed(model.path, tmp_path, {"qwen3.classifier.output_labels": ["yes", "no"]},
                   {"cls.output.weight": weight})
    found = evaluate(build_model(gguf).graph, model.tokens, outputs=[76])
    p = np.exp(found["hidden"][0] @ weight.T)
    assert np.allclose(found["scores"][0], p / p.sum(), atol=1e-6)
    assert np.abs(found["logits"][0] - model.logits[76]).max() <= model.tolerance


def test_classes_are_counted_by_their_names(encoder_model: Load, tmp_path: Path) -> None:
    """What is no list of names is refused."""
    gguf = changed(encoder_model("bert_classes").path, tmp_path, {"bert.classifier.output_labels": 3})
    with pytest.raises(GGUFError, match=r"'bert.classifier.output_labels': found '3', expected a list of names"):
        build_model(gguf)
