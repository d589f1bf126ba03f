"""The models that an Ollama on this machine has pulled, read where they lie; nothing there is ever changed.

    manifests/HOST/NAMESPACE/MODEL/TAG      JSON: which layers a model has
    blobs/sha256-HEX                        a layer
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from ggpy.errors import RequestError
from ggpy.hub.model_names import ModelName
from ggpy.hub.modelfile import check_message, check_parameters
from ggpy.hub.store import StoredModel, is_digest

MEDIA = "application/vnd.ollama.image."
MAX_BYTES = 1 << 20         # of a manifest, and of a layer that is text


class _Layer(msgspec.Struct):
    media_type: str = msgspec.field(name="mediaType")
    digest: str


class _Manifest(msgspec.Struct):
    layers: list[_Layer]


def ollama_models(folder: Path) -> Iterator[StoredModel]:
    """The models in a folder of Ollama's; those that ggpy cannot read as one file of text are left out."""
    for path in sorted(folder.glob("manifests/*/*/*/*")):
        try:
            model = _model(folder, path)
        except (OSError, RequestError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        if model is not None:
            yield model


def _model(folder: Path, path: Path) -> StoredModel | None:
    """The model of a manifest; None if it has pictures, or no file that is here. Raises for what is damaged."""
    host, namespace, model, tag = path.relative_to(folder / "manifests").parts
    name = ModelName.parse(f"{host}/{namespace}/{model}:{tag}")
    layers: dict[str, list[Path]] = {}
    for layer in msgspec.json.decode(_bytes(path), type=_Manifest).layers:
        if is_digest(layer.digest):
            kind = layer.media_type.removeprefix(MEDIA)
            layers.setdefault(kind, []).append(folder / "blobs" / layer.digest.replace(":", "-"))
    files = layers.get("model", [])
    if len(files) != 1 or not files[0].is_file() or "projector" in layers:
        return None
    messages = [message for blob in layers.get("messages", ())
                for message in msgspec.json.decode(_bytes(blob), type=list[dict[str, Any]])]
    parameters: dict[str, Any] = {}
    for blob in layers.get("params", ()):
        parameters |= msgspec.json.decode(_bytes(blob), type=dict[str, Any])
    return StoredModel(
        name=str(name), source=str(files[0]), adapters=tuple(map(str, layers.get("adapter", ()))),
        template=_text(layers, "template"), system=_text(layers, "system"), parameters=check_parameters(parameters),
        messages=tuple(map(check_message, messages)), licenses=tuple(map(_read, layers.get("license", ()))))


def _text(layers: dict[str, list[Path]], kind: str) -> str | None:
    blobs = layers.get(kind)
    return _read(blobs[-1]) if blobs else None


def _read(path: Path) -> str:
    return _bytes(path).decode()


def _bytes(path: Path) -> bytes:
    if path.stat().st_size > MAX_BYTES:
        raise RequestError(f"{path} has more than {MAX_BYTES:,} bytes")
    return path.read_bytes()
