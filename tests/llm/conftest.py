"""What the tests of the library share: a tiny model on the NumPy backend."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ggpy.loading
from ggpy import LLM
from tests.llm.reference_backend import ReferenceBackend
from tests.models.arch_data import ArchModel, load_arch


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ArchModel:
    """A random llama of 280 tokens, with llama.cpp's logits."""
    return load_arch("llama", tmp_path_factory.mktemp("arch"))


@pytest.fixture
def load(tiny: ArchModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., LLM]]:
    """Loads the tiny model, on the NumPy backend."""
    monkeypatch.setattr(ggpy.loading, "open_backend", ReferenceBackend)
    monkeypatch.setattr(ReferenceBackend, "opened", [])
    loaded: list[LLM] = []

    def open_llm(**options: Any) -> LLM:
        loaded.append(LLM(tiny.path, **options))
        return loaded[-1]

    yield open_llm
    for llm in loaded:
        llm.close()
