"""Which models there are: OpenAI's routes, which llama-server has too, with members of its own."""

from __future__ import annotations

import time
from typing import Any

from aiohttp import web

from ggpy.server.context import Server
from ggpy.server.errors import UnknownModelError
from ggpy.server.model_pool.downloads import pulled_as, reload
from ggpy.server.model_pool.model_lookup import meant_entry
from ggpy.server.model_pool.models import Entry
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/models, /v1/models and /v1/models/NAME."""
    async def models(request: web.Request) -> web.Response:
        if request.query.get("reload") and not server.models.is_single:
            reload(server.models)
        entries = [entry for entry in server.models.entries.values() if entry.is_listed]
        return json_response({"models": [ollama_object(entry) for entry in entries], "object": "list",
                              "data": [listed(server, entry) for entry in entries]})

    async def one_model(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        entry = meant_entry(server.models.entries.values(), name)
        if entry is None:
            raise UnknownModelError(name)
        return json_response(model_object(entry))

    return [*(Route("GET", path, models) for path in ("/models", "/v1/models")),
            Route("GET", "/v1/models/{name:.+}", one_model)]


def listed(server: Server, entry: Entry) -> dict[str, Any]:
    """A model in the list."""
    return model_object(entry) if server.models.is_single else {**model_object(entry), **router_object(entry)}


def model_object(entry: Entry) -> dict[str, Any]:
    """A model as OpenAI lists it, with what llama-server adds."""
    model = entry.loaded or entry.last
    names = sorted({*entry.aliases} or {entry.name})
    card: dict[str, Any] = {"id": entry.name, "aliases": names, "tags": sorted(entry.tags), "object": "model",
                            "created": int(time.time()), "owned_by": "llamacpp"}
    if model is not None:
        ready, info = model.ready, model.info
        card["meta"] = {"vocab_type": model.tokenizer.vocab_type.value, "n_vocab": ready.n_vocab, "n_ctx": ready.n_ctx,
                        "n_ctx_train": info.n_ctx_train, "n_embd": ready.n_embd, "n_params": info.n_params,
                        "size": info.size_bytes, "ftype": info.file_type}
    return card


def router_object(entry: Entry) -> dict[str, Any]:
    """A model as the list shows it."""
    status: dict[str, Any] = {"value": "unloaded" if entry.state == "failed" else entry.state}
    if entry.state == "failed":
        status |= {"failed": True, "exit_code": 1}
    if entry.state == "loading" and entry.progress is not None:
        status["progress"] = {"stage": entry.progress.stage, "done": entry.progress.done, "of": entry.progress.of}
    can_remove = pulled_as(entry) is not None
    source = "cache" if can_remove else "models_dir" if entry.settings is None else "preset"
    return {"path": entry.source, "status": status, "source": source, "can_remove": can_remove,
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]}}


def ollama_object(entry: Entry) -> dict[str, Any]:
    """A model as llama-server lists it for clients of Ollama."""
    return {"name": entry.name, "model": entry.name, "modified_at": "", "size": "", "digest": "", "type": "model",
            "description": "", "tags": [""], "capabilities": ["completion"], "parameters": "",
            "details": {"parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
                        "quantization_level": ""}}
