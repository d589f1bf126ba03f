"""The models that a server offers to which none is given: those of this machine, and those of a file of presets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ggpy.hub import huggingface, names
from ggpy.hub.catalogue import CATALOGUE
from ggpy.server.models import Entry
from ggpy.server.settings import ServerSettings


def find_entries(settings: ServerSettings) -> list[Entry]:
    """One for each name; of several with the same the first counts."""
    entries: dict[str, Entry] = {}
    for entry in (*folder_entries(settings.models_dir), *cached_entries(), *catalogue_entries()):
        entries.setdefault(entry.name, entry)
    return list(entries.values())


def catalogue_entries() -> Iterator[Entry]:
    """What `ggpy pull` has fetched."""
    for model in CATALOGUE:
        if model.is_present:
            yield Entry(model.name, str(model.path), model.aliases)


def cached_entries() -> Iterator[Entry]:
    """What Hugging Face's cache has, but for parts of other models."""
    for model, files in huggingface.cached():
        if not files[0].name.lower().startswith("mmproj"):
            name = f"{model.repo}:{names.quant_of(files[0].name) or files[0].name}"
            yield Entry(name, str(files[0]), (names.hub_name(name), str(model)))


def folder_entries(folder: Path | None) -> Iterator[Entry]:
    """The GGUF files in `folder`, and the folders in it that hold one model each, maybe in parts."""
    if folder is None:
        return
    for path in sorted(folder.iterdir()):
        files = [path] if path.is_file() else sorted(path.glob("*.gguf")) if path.is_dir() else []
        files = [file for file in files if file.suffix == ".gguf" and not file.name.lower().startswith("mmproj")]
        if files:
            yield Entry(path.stem if path.is_file() else path.name, str(files[0]))
