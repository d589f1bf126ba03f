"""The library, with a model that a client of the server made."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ggpy.loading
from ggpy import LLM, SamplingParams
from ggpy.errors import GgpyError, TemplateError
from ggpy.gguf import GGUFFile
from ggpy.hub.store import ModelStore, StoredModel
from tests.llm.reference_backend import ReferenceBackend
from tests.models.arch_data import ArchModel

USER = {"role": "user", "content": "b"}
TEMPLATE = "{% for message in messages %}{{ message.role[0] + message.content }}{% endfor %}"


@pytest.fixture
def load_made(tiny: ArchModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., LLM]]:
    """Loads the tiny model, made under the name "helper" as it is told."""
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(ggpy.loading, "open_backend", ReferenceBackend)
    loaded: list[LLM] = []

    def open_llm(model: StoredModel, **options: object) -> LLM:
        ModelStore().save(model)
        loaded.append(LLM("helper", **options))     # type: ignore[arg-type]
        return loaded[-1]

    yield open_llm
    for llm in loaded:
        llm.close()


def test_it_is_loaded_as_its_maker_said(tiny: ArchModel, load_made: Callable[..., LLM]) -> None:
    """Context, parameters, template and messages; each where the caller does not say."""
    made = StoredModel(name="helper:latest", source=str(tiny.path), template=TEMPLATE, system="x",
                       parameters={"num_ctx": 40, "num_predict": 3, "temperature": 0.0},
                       messages=({"role": "assistant", "content": "y"},))
    llm = load_made(made)
    assert (llm.n_ctx, llm.made, llm.path, llm.has_chat_template) == (40, made, tiny.path, True)
    assert llm.default_params == SamplingParams(max_tokens=3, temperature=0.0)
    assert llm.detokenize(llm.chat_tokens([USER])) == "<|bos|>sxayub"
    assert llm.detokenize(llm.chat_tokens([{"role": "system", "content": "z"}, USER])) == "<|bos|>szayub"
    assert llm.chat([USER]).timings.n_generated == 3
    with pytest.raises(TemplateError, match="messages"):
        llm.chat_tokens([])
    other = load_made(made, n_ctx=24, chat_template="{{ messages[-1].content }}")
    assert (other.n_ctx, other.detokenize(other.chat_tokens([USER]))) == (24, "<|bos|>b")


@pytest.mark.parametrize(("messages", "reason"), [
    ("Hi", "messages: expected a list of mappings, found 'Hi'"),
    ([USER, "Hi"], r"messages\[1\]: expected a mapping with role and content"),
    ([{"content": "b"}], r"messages\[0\] has no role"),
    ([USER, {"role": "user", "content": [{"type": "image"}]}], r"messages\[1\].content\[0\]: .* takes only text"),
])
def test_errors_count_the_callers_own_messages(tiny: ArchModel, load_made: Callable[..., LLM], messages: Any,
                                               reason: str) -> None:
    """The maker's three stand in front of them."""
    llm = load_made(StoredModel(name="helper:latest", source=str(tiny.path), template=TEMPLATE, system="x",
                                messages=({"role": "user", "content": "y"}, {"role": "assistant", "content": "z"})))
    with pytest.raises(TemplateError, match=f"^{reason}"):
        llm.chat_tokens(messages)


def test_its_context_is_no_longer_than_its_training(tiny: ArchModel, load_made: Callable[..., LLM]) -> None:
    """Whatever its maker said: there is no memory for so many tokens."""
    n_ctx_train = GGUFFile(tiny.path).metadata.get_int("llama.context_length")
    made = StoredModel(name="helper:latest", source=str(tiny.path), parameters={"num_ctx": 2_000_000_000})
    assert load_made(made).n_ctx == n_ctx_train


def test_its_adapters_are_its_own(tiny: ArchModel, load_made: Callable[..., LLM], tmp_path: Path) -> None:
    """One that is gone is an error that names it."""
    with pytest.raises(GgpyError, match=r"gone\.gguf"):
        load_made(StoredModel(name="helper:latest", source=str(tiny.path), adapters=(str(tmp_path / "gone.gguf"),)))


def test_other_models_have_no_maker(load: Callable[..., LLM]) -> None:
    """And the usual parameters."""
    assert (load().made, load().default_params) == (None, SamplingParams())
