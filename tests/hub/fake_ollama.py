"""A folder like that in which Ollama keeps its models."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path


def blob(folder: Path, data: bytes) -> str:
    """Its digest."""
    digest = hashlib.sha256(data).hexdigest()
    path = folder / "blobs" / f"sha256-{digest}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return f"sha256:{digest}"


def manifest(folder: Path, name: str, **layers: bytes) -> Path:
    """Writes that of a model with `layers`."""
    path = folder / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 2, "config": {"digest": blob(folder, b"{}")}, "layers": [
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": blob(folder, data), "size": len(data)}
        for kind, data in layers.items()]}))
    return path
