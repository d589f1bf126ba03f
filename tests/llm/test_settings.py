"""Settings and arguments of the library: what is refused, and what stands where none is given."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ggpy.loading
from ggpy import LLM, SamplingParams
from ggpy.backends.base import PAGE_TOKENS
from ggpy.errors import (
    ConfigError,
    PullError,
    RequestError,
    TokenizerError,
)
from ggpy.gguf import GGUFFile
from ggpy.models import hparams_of
from tests.models.arch_data import ArchModel

GREEDY = SamplingParams(temperature=0, max_tokens=8)


def test_the_context_is_the_models_cut_to_memory(load: Callable[..., LLM], monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is available may go to keys and values."""
    llm = load()
    trained = llm.metadata.get_int("llama.context_length")
    assert llm.n_ctx == trained
    monkeypatch.setattr(ggpy.loading, "available_memory_bytes", lambda: 1000)
    assert load().n_ctx == PAGE_TOKENS


def test_a_context_beyond_the_trained_one_is_warned_of(
    load: Callable[..., LLM], tiny: ArchModel, caplog: pytest.LogCaptureFixture
) -> None:
    """With both sizes; it may be what the user wants."""
    trained = hparams_of(GGUFFile(tiny.path)).n_ctx_train
    load(n_ctx=trained)
    assert "trained" not in caplog.text
    assert load(n_ctx=trained + 1).n_ctx == trained + 1
    assert f"the context is {trained + 1:,} tokens, but the model was trained for {trained:,}" in caplog.text


@pytest.mark.parametrize(("options", "message"), [
    ({"compute": "int4"}, "compute='int4': expected one of int8, f32"),
    ({"cache_type_k": "f8"}, "cache_type_k='f8': expected one of f16, q8_0, f32"),
    ({"cache_type_v": 8}, "cache_type_v=8"),
    ({"repack": True}, "repack=True"),
    ({"n_ctx": 1}, "n_ctx=1: expected a whole number of at least 2"),
    ({"n_ctx": 0}, "n_ctx=0"),
    ({"n_ctx": "9"}, "n_ctx='9': expected a whole number"),
    ({"n_threads": 2.5}, r"n_threads=2\.5: expected a whole number of at least 1"),
    ({"n_threads": 0}, "n_threads=0"),
    ({"max_batch_tokens": 0}, "max_batch_tokens=0"),
    ({"n_ctx": 65, "pool_tokens": 64}, "pool_tokens=64: expected a whole number of at least 65"),
])
def test_settings_that_cannot_work_are_refused(
    load: Callable[..., LLM], options: dict[str, Any], message: str
) -> None:
    """Before anything is loaded."""
    with pytest.raises(ConfigError, match=message):
        load(**options)


@pytest.mark.parametrize(("prompt", "message"), [
    ([1, 1.7], r"prompt\[1\]=1\.7: expected a token id, a whole number"),
    (np.ones(3, np.float32), r"prompt\[0\]=.*1.0.*: expected a token id"),
    (["hello"], r"prompt\[0\]='hello': expected a token id"),
    ([[1, 2]], r"prompt\[0\]=\[1, 2\]: expected a token id"),
    (b"hello", "prompt=b'hello': expected a text or a sequence of token ids"),
    (5, "prompt=5: expected a text or a sequence of token ids"),
    (None, "prompt=None: expected a text or a sequence of token ids"),
])
def test_prompts_of_other_types_are_refused(load: Callable[..., LLM], prompt: Any, message: str) -> None:
    """A number that is nearly a token is not rounded to one, and bytes are no list of tokens."""
    with pytest.raises(RequestError, match=message):
        load(n_ctx=64).generate(prompt)


def test_numpys_integers_are_tokens(load: Callable[..., LLM]) -> None:
    """In an array or one by one."""
    llm = load(n_ctx=64)
    expected = llm.generate([5, 6], GREEDY).tokens
    assert llm.generate(np.array([5, 6], np.uint8), GREEDY).tokens == expected
    assert llm.generate([np.int64(5), 6], GREEDY).tokens == expected


def test_other_arguments_of_other_types_are_refused(load: Callable[..., LLM]) -> None:
    """By their name."""
    llm = load(n_ctx=64)
    with pytest.raises(RequestError, match=r"prompt=.*too large to write: expected a text or a sequence of token ids"):
        llm.generate(10**5000)      # type: ignore[arg-type]
    with pytest.raises(RequestError, match="too large to write is not in the vocabulary; expected 0 to"):
        llm.generate([10**5000])
    with pytest.raises(TokenizerError, match="too large to write: expected an id from 0 to"):
        llm.detokenize([10**5000])
    with pytest.raises(RequestError, match=r"params=\{'max_tokens': 3\}: expected a SamplingParams"):
        llm.generate("x", {"max_tokens": 3})    # type: ignore[arg-type]
    with pytest.raises(RequestError, match="text=5: expected a string"):
        llm.tokenize(5)     # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="positions='first': expected one of all, last"):
        llm.logits([1], "first")    # type: ignore[arg-type]
    with pytest.raises(RequestError, match="ids='ab': expected a sequence of token ids"):
        llm.logits("ab")    # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="model=None: expected a path"):
        LLM(None)           # type: ignore[arg-type]
    for template in (5, "chatlm"):
        with pytest.raises(ConfigError, match=f"chat_template={template!r}: expected Jinja source, .* one of chatml"):
            load(chat_template=template)


def test_the_default_context_fits_the_pool(load: Callable[..., LLM]) -> None:
    """A pool smaller than the model's context shortens it."""
    assert load(pool_tokens=96).n_ctx == 96
    assert load(pool_tokens=10_000).n_ctx == load().n_ctx


def test_a_name_that_no_model_has_is_refused(tmp_path: Path) -> None:
    """As is a file that is not there."""
    with pytest.raises(PullError, match="no model is called 'smolm2'"):
        LLM("smolm2")
    with pytest.raises(PullError, match="there is no such file"):
        LLM(tmp_path / "model.gguf")
