"""Embeddings and ranks by encoders, on the NumPy backend and on the CPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ggpy.loading
from ggpy import LLM
from ggpy.errors import PromptTooLongError, RequestError
from tests.llm.reference_backend import ReferenceBackend
from tests.models.encoder_data import EncoderModel

Load = Callable[[str], EncoderModel]
TEXT = ("The cat sat on the mat, and then the other cat sat down. 12 + 34 = 46?\n"
        "Outside, the rain was singing to the river.\n")


@pytest.fixture(params=["numpy", "cpu"])
def options(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Of models that compute in float32, on either backend."""
    if request.param == "numpy":
        monkeypatch.setattr(ggpy.loading, "open_backend", ReferenceBackend)
    return {"compute": "f32", "cache_type_k": "f32", "cache_type_v": "f32"}


def unit(vector: np.ndarray[Any, np.dtype[np.float32]]) -> np.ndarray[Any, np.dtype[np.float32]]:
    return vector / np.linalg.norm(vector)


def test_vectors_are_llama_cpps(encoder_model: Load, options: dict[str, Any]) -> None:
    """The model's pooling is the mean; others are there for the asking, and more texts than fit a step too."""
    model = encoder_model("bert")
    with LLM(model.path, max_batch_tokens=100, **options) as llm:
        assert llm.tokenize(TEXT) == model.tokens.tolist()
        assert llm.pooling == "mean"
        vectors = llm.embed([TEXT, "the cat", TEXT, TEXT, "x"])
        assert np.abs(vectors[[0, 2, 3]] - unit(model.hidden.mean(axis=0))).max() <= 1e-2
        assert np.array_equal(vectors[1], llm.embed(["the cat"])[0])
        first, last = (llm.embed([TEXT], pooling=how, normalize=False)[0] for how in ("cls", "last"))
    assert np.abs(first - model.hidden[0]).max() <= model.tolerance
    assert np.abs(last - model.hidden[-1]).max() <= model.tolerance


def test_a_reranker_scores_documents(encoder_model: Load, options: dict[str, Any]) -> None:
    """Each with the query, BOS before them; the order of the documents is of no account."""
    with LLM(encoder_model("bert_rank").path, **options) as llm:
        scores = llm.rerank("cat", ["the cat", "rain"])
        assert np.array_equal(llm.rerank("cat", ["rain", "the cat"]), scores[::-1])
        assert scores[0] != scores[1]
        assert llm.rerank("cat", []).shape == (0,)


def test_what_an_encoder_cannot_do_is_said(encoder_model: Load, options: dict[str, Any]) -> None:
    """It does not generate, nor read a text that is longer than a step; without a classifier it does not rank."""
    with LLM(encoder_model("nomic-bert").path, max_batch_tokens=50, **options) as llm:
        for use in (lambda: llm.generate("cat"), lambda: llm.logits([1])):
            with pytest.raises(RequestError, match="this model makes embeddings and does not generate text"):
                use()
        with pytest.raises(PromptTooLongError, match=r"input \(77 tokens\) is too large to process. increase the "
                           r"physical batch size \(current batch size: 50\)"):
            llm.embed(["cat", TEXT])
        with pytest.raises(RequestError, match="this model has no classifier, so it does not rank; load a reranker"):
            llm.rerank("cat", ["rain"])
        assert llm.embed(["cat"]).shape == (1, 48)


def test_a_context_is_no_longer_than_an_encoder_was_made_for(encoder_model: Load, options: dict[str, Any]) -> None:
    """More is taken back, so that the settings of other models do."""
    with LLM(encoder_model("bert").path, n_ctx=4096, **options) as llm:
        assert llm.n_ctx == 128
