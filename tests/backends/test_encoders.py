"""Encoders on the CPU backend: llama.cpp's hidden states, and the same bits whatever keeps a text company."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ggpy.backends.base import StepSequence
from ggpy.backends.cpu import CpuBackend
from tests.backends.steps import cpu, pages, sequence
from tests.models.encoder_data import EncoderModel, encoder_names

Load = Callable[[str], EncoderModel]


def whole(backend: CpuBackend, tokens: Sequence[int], *ids: int) -> StepSequence:
    """A text with the output of all its rows."""
    return sequence(backend, tokens, 0, pages(*ids), len(tokens))


@pytest.mark.parametrize("name", encoder_names())
def test_truth_path_gives_llama_cpps_states_and_scores(name: str, encoder_model: Load) -> None:
    """Float32 weights and activations are within the model's tolerance everywhere."""
    model = encoder_model(name)
    with cpu(model, compute="f32", cache_type_k="f32", cache_type_v="f32") as backend:
        hidden = backend.hidden([whole(backend, model.tokens.tolist(), 0, 1, 2)]).copy()
        assert np.abs(hidden - model.hidden).max() <= model.tolerance
        assert backend.n_classes == (0 if model.scores is None else len(model.scores))
        if model.scores is not None:
            first = StepSequence(model.tokens, 0, whole(backend, model.tokens.tolist(), 0, 1, 2).page_table, 1, True)
            assert np.abs(backend.scores([first])[0] - model.scores).max() <= model.tolerance


@pytest.mark.parametrize("name", ["bert", "nomic-bert", "jina-bert-v2"])
def test_bits_do_not_depend_on_other_texts_or_threads(name: str, encoder_model: Load) -> None:
    """Three texts of one step are each as if alone, whoever computes them."""
    model = encoder_model(name)
    long, short = model.tokens.tolist(), model.tokens.tolist()[20:49]
    with cpu(model, max_tokens=256) as backend:
        alone = [backend.hidden([whole(backend, tokens, 0, 1, 2)]).copy() for tokens in (long, short)]
    for n_threads in (1, 3):
        with cpu(model, max_tokens=256, n_threads=n_threads) as backend:
            together = backend.hidden([whole(backend, short, 9), whole(backend, long, 4, 7, 2),
                                       whole(backend, short, 8)]).copy()
        assert np.array_equal(together, np.concatenate([alone[1], alone[0], alone[1]]))


def test_first_rows_can_be_output_instead_of_last_ones(encoder_model: Load) -> None:
    """n_outputs counts from the side that is asked for."""
    model: Any = encoder_model("bert")
    with cpu(model) as backend:
        every = whole(backend, model.tokens.tolist(), 0, 1, 2)
        states = backend.hidden([every]).copy()
        first = backend.hidden([StepSequence(every.tokens, 0, every.page_table, 2, outputs_first=True)]).copy()
        last = backend.hidden([StepSequence(every.tokens, 0, every.page_table, 2)]).copy()
    assert np.array_equal(first, states[:2])
    assert np.array_equal(last, states[-2:])


def test_layers_of_an_encoder_share_the_memory_of_their_keys(encoder_model: Load) -> None:
    """Each needs them only while it is computed."""
    with cpu(encoder_model("bert"), n_pages=4) as backend:
        assert backend.kv_groups[0].layers == (0, 1)
        assert backend._kv.addresses(0) == backend._kv.addresses(1)
