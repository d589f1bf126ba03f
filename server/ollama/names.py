"""What Ollama's clients call the models of this server."""

from __future__ import annotations

from pathlib import Path

from ggpy.errors import GgpyError, RequestError
from ggpy.hub.resolve import resolve_model
from ggpy.server.context import Server
from ggpy.server.model_pool.model_lookup import meant_entry
from ggpy.server.model_pool.models import Entry
from ggpy.server.web.fields import Fields


def model_field(fields: Fields, *names: str) -> str:
    """The model that a request names. Raises RequestError if it names none."""
    name = fields.text(*(names or ("model", "name")), default="")
    if not name.strip():
        raise RequestError("model is required")
    return name.strip()


def find_entry(server: Server, name: str) -> Entry:
    """The model called `name`; a server of one model takes any name for it. Raises UnknownModelError."""
    return server.models.find(name)


def known_entry(server: Server, name: str) -> Entry | None:
    """The model that goes by `name`; None if none does."""
    return meant_entry(server.models.entries.values(), name)


def model_file(entry: Entry) -> Path:
    """Where the model lies. Raises PullError if it is not here."""
    return entry.last.info.path if entry.last is not None else resolve_model(entry.source, offline=True)


def is_here(entry: Entry) -> bool:
    try:
        model_file(entry)
    except GgpyError:
        return False
    return True
