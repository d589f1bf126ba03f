"""Which of the server's models a name means, in every dialect."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from ggpy.errors import RequestError
from ggpy.hub import names
from ggpy.hub.model_names import DEFAULT_TAG, ModelName
from ggpy.server.model_pool.models import Entry

ENDING = re.compile(r"\.gguf$", re.IGNORECASE)


def named_entry(entries: Collection[Entry], name: str) -> Entry | None:
    """The one of `entries` with exactly this name or alias; None if there is none."""
    return next((entry for entry in entries if name == entry.name or name in entry.aliases), None)


def meant_entry(entries: Collection[Entry], name: str) -> Entry | None:
    """The one of `entries` that goes by `name`, in any case of letters and maybe without its tag; None if none does."""
    exact = named_entry(entries, name)
    if exact is not None:
        return exact
    key = name_key(name)
    found = None if key is None else next((entry for entry in entries if key in entry_keys(entry)), None)
    return found or of_repository(entries, name)


def of_repository(entries: Collection[Entry], name: str) -> Entry | None:
    """The model that a name of Hugging Face without a quantisation means: the usual one, or else the first."""
    try:
        parsed = ModelName.parse(f"hf.co/{name[3:]}" if names.is_hub_name(name) else name)
    except RequestError:
        return None
    if not parsed.is_on_hub or parsed.tag != DEFAULT_TAG:
        return None
    prefix = f"{parsed.hub_name}:".lower()
    found = [entry for entry in entries if any(alias.lower().startswith(prefix) for alias in entry.aliases)]
    usual = [entry for entry in found if entry.name.endswith(f":{names.DEFAULT_QUANT}")]
    return next(iter(usual or found), None)


def name_key(name: str) -> str | None:
    """What two names have in common that mean the same model; None if it is none."""
    try:
        return ModelName.parse(name.removeprefix("hf:")).key
    except RequestError:
        return None


def entry_keys(entry: Entry) -> Iterator[str]:
    """Of all names of a model; one of Hugging Face goes by its host, too."""
    for name in (shown_name(entry), entry.name, *entry.aliases):
        spellings = [name, f"hf.co/{name.removeprefix('hf:')}"] if name.removeprefix("hf:").count("/") == 1 else [name]
        for spelling in spellings:
            if (key := name_key(spelling)) is not None:
                yield key.replace("huggingface.co/", "hf.co/")


def shown_name(entry: Entry) -> str:
    """The name of a model in lists: with a tag; of one that is called by its path, its file's."""
    name = entry.name
    if entry.name == entry.source and Path(name).suffix.lower() == ".gguf":
        name = re.sub(r"[^\w.-]+", "-", ENDING.sub("", Path(name).name), flags=re.ASCII).lstrip("-.")
    try:
        return str(ModelName.parse(name.removeprefix("hf:")))
    except RequestError:
        return name if ":" in name else f"{name}:{DEFAULT_TAG}"
