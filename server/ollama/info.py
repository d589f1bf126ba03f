"""Ollama's routes that tell which models there are."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from ggpy.errors import GgpyError
from ggpy.hub.model_names import ModelName
from ggpy.hub.modelfile import parameter_lines
from ggpy.hub.store import ModelStore
from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError
from ggpy.server.model_pool.model_lookup import shown_name
from ggpy.server.model_pool.models import Entry, LoadedModel
from ggpy.server.ollama.cards import Card, card_of, model_info, modelfile_text, parameter_text, rfc3339
from ggpy.server.ollama.lines import Line, ollama_body, read_body
from ggpy.server.ollama.names import find_entry, model_field
from ggpy.server.ollama.options import FOREVER_S
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route

VERSION = "0.13.5"          # of Ollama, that clients find here what they look for
COPILOT = "GitHubCopilotChat/"


def routes(server: Server) -> list[Route]:
    """/api/version, /api/status, /api/tags, /api/ps and /api/show."""
    async def version(request: web.Request) -> web.Response:
        return json_response({"version": VERSION})

    async def status(request: web.Request) -> web.Response:
        return json_response({"cloud": {"disabled": True, "source": "none"}})

    async def tags(request: web.Request) -> web.Response:
        return json_response({"models": await asyncio.to_thread(listed, server)})

    async def ps(request: web.Request) -> web.Response:
        loaded = [(entry, entry.loaded, expires_s(entry)) for entry in server.models.entries.values()
                  if entry.loaded is not None]
        loaded.sort(key=lambda found: -found[2])
        return json_response({"models": await asyncio.to_thread(
            lambda: [running(entry, model, until_s, server) for entry, model, until_s in loaded])})

    async def show(request: web.Request) -> web.Response:
        fields = await read_body(request)
        name = model_field(fields)
        entry = find_entry(server, name)
        reply = await asyncio.to_thread(shown, entry, server, has_arrays=fields.boolean("verbose", default=False))
        if request.headers.get("User-Agent", "").startswith(COPILOT):
            reply["model_info"]["general.basename"] = name
        return json_response(reply)

    return [
        *(Route(method, path, handler, ollama_body) for method in ("GET", "HEAD")
          for path, handler in (("/api/version", version), ("/api/tags", tags))),
        Route("GET", "/api/status", status, ollama_body), Route("GET", "/api/ps", ps, ollama_body),
        Route("POST", "/api/show", show, ollama_body),
    ]


def listed(server: Server) -> list[Line]:
    """The models that are on this machine, the last that changed first."""
    found: dict[str, tuple[float, Line]] = {}
    for entry in list(server.models.entries.values()):
        if not entry.is_listed:
            continue
        try:
            card = card_of(entry, server.settings)
        except (GgpyError, OSError):       # not pulled, or damaged
            continue
        modified_s = modified(entry, card)
        found.setdefault(shown_name(entry), (modified_s, {
            **named(entry, card), "modified_at": rfc3339(modified_s), "size": card.size_bytes,
            "capabilities": card.capabilities}))
    return [line for _, line in sorted(found.values(), key=lambda pair: -pair[0])]


def named(entry: Entry, card: Card) -> Line:
    """What all lists tell of a model."""
    name = shown_name(entry)
    return {"name": name, "model": name, "digest": card.digest if entry.stored is None else entry.stored.sha256,
            "details": details(entry, card)}


def details(entry: Entry, card: Card) -> dict[str, Any]:
    return {**card.details, "parent_model": "" if entry.stored is None else entry.stored.parent}


def modified(entry: Entry, card: Card) -> float:
    """When the model was made, in seconds since 1970."""
    if entry.stored is None:
        return card.modified_s
    return ModelStore().modified_s(ModelName.parse(entry.stored.name)) or card.modified_s


def expires_s(entry: Entry) -> float:
    """When a loaded model goes if nobody asks for it, in seconds since 1970."""
    if entry.keep_s is None:
        return time.time() + FOREVER_S
    idle_s = 0.0 if entry.n_users else time.monotonic() - entry.last_used_s
    return time.time() + min(entry.keep_s, FOREVER_S) - idle_s


def running(entry: Entry, model: LoadedModel, until_s: float, server: Server) -> Line:
    """A loaded model."""
    card = card_of(entry, server.settings)
    return {**named(entry, card), "size": model.info.size_bytes, "expires_at": rfc3339(until_s),
            "size_vram": 0, "context_length": model.n_ctx}


def shown(entry: Entry, server: Server, *, has_arrays: bool) -> Line:
    """All that is known of a model. Raises NotFoundError if its file is not here."""
    try:
        card = card_of(entry, server.settings)
    except (GgpyError, OSError) as error:
        raise NotFoundError(f"model '{shown_name(entry)}' not found: {error}") from error
    info, tensors = model_info(card.path, has_arrays=has_arrays)
    stored = entry.stored
    parameters = [] if stored is None else parameter_lines(stored.parameters)
    messages = [] if stored is None else list(stored.messages)
    system = "" if stored is None else stored.system or ""
    template = card.template if stored is None else stored.template or card.template
    licenses = [text for key in ("general.license",) if isinstance(text := info.get(key), str)]
    if stored is not None and stored.licenses:
        licenses = list(stored.licenses)
    found: Line = {
        "modelfile": modelfile_text({
            "name": shown_name(entry), "from": card.path, "adapters": () if stored is None else stored.adapters,
            "template": template, "system": system, "parameters": parameters, "messages": messages,
            "licenses": () if stored is None else stored.licenses}),
        "parameters": parameter_text(parameters), "template": template, "system": system,
        "license": "\n".join(licenses), "details": details(entry, card), "model_info": info, "tensors": tensors,
        "capabilities": card.capabilities, "modified_at": rfc3339(modified(entry, card)),
    }
    optional = ("parameters", "system", "license")
    return {name: value for name, value in found.items() if value or name not in optional} | (
        {"messages": messages} if messages else {})
