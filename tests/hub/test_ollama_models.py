"""The models that an Ollama on this machine has pulled."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from ggpy.hub.ollama_models import MAX_BYTES, ollama_models
from ggpy.hub.store import StoredModel
from tests.hub.fake_ollama import manifest


def test_a_model_is_read_where_it_lies(tmp_path: Path) -> None:
    """With all that its Modelfile said."""
    manifest(tmp_path, "registry.ollama.ai/library/small/1b", model=b"GGUF", template=b"{{ .Prompt }}", system=b"S",
             params=b'{"stop": ["x"], "temperature": 0.5, "mirostat": 1}', license=b"L",
             messages=b'[{"role": "user", "content": "hi"}]')
    assert list(ollama_models(tmp_path)) == [StoredModel(
        name="small:1b", source=str(tmp_path / "blobs" / f"sha256-{hashlib.sha256(b'GGUF').hexdigest()}"),
        template="{{ .Prompt }}", system="S", parameters={"stop": ["x"], "temperature": 0.5}, licenses=("L",),
        messages=({"role": "user", "content": "hi"},))]


def test_models_of_pictures_are_left_out(tmp_path: Path) -> None:
    """And those whose file is not here."""
    manifest(tmp_path, "registry.ollama.ai/library/seeing/latest", model=b"GGUF", projector=b"GGUF 2")
    manifest(tmp_path, "registry.ollama.ai/library/cloud/latest")
    assert list(ollama_models(tmp_path)) == []


@pytest.mark.parametrize("layers", [
    {"params": b"no JSON"}, {"params": b"[]"}, {"params": b'{"temperature": "hot"}'}, {"template": b"\xff"},
    {"messages": b'[{"role": "robot"}]'}, {"system": b"x" * (MAX_BYTES + 1)},
])
def test_what_is_damaged_is_left_out(tmp_path: Path, layers: dict[str, Any]) -> None:
    """The others are there."""
    manifest(tmp_path, "registry.ollama.ai/library/broken/latest", model=b"GGUF", **layers)
    manifest(tmp_path, "registry.ollama.ai/me/whole/latest", model=b"GGUF")
    assert [model.name for model in ollama_models(tmp_path)] == ["me/whole:latest"]


@pytest.mark.parametrize("text", [
    "", "[]", "{", '{"layers": 1}', '{"layers": [{"mediaType": 1, "digest": "x"}]}',
    '{"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "../x"}]}'])
def test_a_manifest_that_is_none_is_left_out(tmp_path: Path, text: str) -> None:
    """Nor is a digest a path."""
    path = tmp_path / "manifests" / "registry.ollama.ai" / "library" / "x" / "latest"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert list(ollama_models(tmp_path)) == []


def test_without_an_ollama_there_are_no_models(tmp_path: Path) -> None:
    """The folder need not exist."""
    assert list(ollama_models(tmp_path / "none")) == []
