"""Ollama's routes that change which models there are: create, copy, delete, and blobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
from aiohttp import web

from ggpy.errors import RequestError
from ggpy.hub import catalogue, names, resolve
from ggpy.hub.model_names import ModelName
from ggpy.hub.store import ModelStore, StoredModel, check_digest
from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError, NotSupportedError
from ggpy.server.model_pool.downloads import find_pullable, reload
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.model_pool.model_lookup import shown_name
from ggpy.server.model_pool.models import Entry
from ggpy.server.model_pool.stored_models import lasting_source, replace_entry
from ggpy.server.ollama.create import creating, read_creation
from ggpy.server.ollama.lines import ollama_body, read_body
from ggpy.server.ollama.names import known_entry, model_field
from ggpy.server.ollama.pull import progress_response
from ggpy.server.web.routes import Route

CHUNK_BYTES = 1 << 20


def routes(server: Server) -> list[Route]:
    """/api/create, /api/copy, /api/delete and /api/blobs."""
    async def create(request: web.Request) -> web.StreamResponse:
        fields = await read_body(request)
        name = ModelName.parse(model_field(fields))
        require_store(server.models)
        check_free(server, str(name))
        lines = creating(server, name, await asyncio.to_thread(read_creation, fields))
        return await progress_response(request, lines, is_stream=fields.boolean("stream", default=True))

    async def copy(request: web.Request) -> web.Response:
        fields = await read_body(request)
        source, destination = model_field(fields, "source"), ModelName.parse(model_field(fields, "destination"))
        require_store(server.models)
        entry = known_entry(server, source)
        if entry is None:
            raise NotFoundError(f'model "{source}" not found')
        check_free(server, str(destination))
        await replace_entry(server.models, copied(entry, destination))
        return web.Response()

    async def delete(request: web.Request) -> web.Response:
        name = model_field(await read_body(request))
        require_store(server.models)
        entry = known_entry(server, name)
        if entry is None:
            raise NotFoundError(f"model '{name}' not found")
        await delete_entry(server, entry)
        return web.Response()

    async def has_blob(request: web.Request) -> web.Response:
        return web.Response(status=200 if ModelStore().has_blob(request.match_info["digest"]) else 404)

    async def upload(request: web.Request) -> web.Response:
        digest = check_digest(request.match_info["digest"])
        require_store(server.models)
        if ModelStore().has_blob(digest):
            return web.Response()
        await receive(request, digest)
        return web.Response(status=201)

    return [
        *(Route(method, path, handler, ollama_body, changes_server=True) for method, path, handler in (
            ("POST", "/api/create", create), ("POST", "/api/copy", copy), ("DELETE", "/api/delete", delete),
            ("POST", "/api/blobs/{digest}", upload))),
        Route("HEAD", "/api/blobs/{digest}", has_blob, ollama_body),
    ]


def require_store(models: ModelManager) -> None:
    """Raise NotSupportedError where one model was given, which any name means."""
    if models.is_single:
        raise NotSupportedError(f"this server serves {models.single.name} alone; start it without a model to make, "
                                "copy and delete models")


def check_free(server: Server, name: str) -> None:
    """Raise RequestError for the name of a model that is not of the store, which must not be hidden by another.

    It need not be here yet: what `ggpy pull` fetches goes by its name also later.
    """
    entry = known_entry(server, name)
    if entry is not None and (entry.is_foreign or not has_name_of_its_own(entry)):
        raise RequestError(f"{name} is the name of a model that was not made here; choose another name")
    if find_pullable(name.lower()) is not None:
        raise RequestError(f"{name} is the name of a model that `ggpy pull` fetches; choose another name")


def copied(entry: Entry, name: ModelName) -> StoredModel:
    if entry.stored is not None:
        return msgspec.structs.replace(entry.stored, name=str(name))
    return StoredModel(name=str(name), source=lasting_source(entry), parent=shown_name(entry))


async def delete_entry(server: Server, entry: Entry) -> None:
    """Delete a model that was made or pulled here. Raises RequestError for the files of others."""
    pulled = catalogue.find(entry.name)
    if entry.is_foreign:
        raise RequestError(f"{entry.name} belongs to Ollama: `ollama rm` deletes it")
    if not has_name_of_its_own(entry) and (pulled is None or Path(entry.source) != pulled.path):
        if any(names.is_hub_name(alias) for alias in entry.aliases):
            raise RequestError(f"{entry.name} lies in Hugging Face's cache, which other programs use too: "
                               "`hf cache rm` deletes it")
        raise RequestError(f"{entry.name} was not made here: its file is somebody's own, and stays")
    server.models.entries.pop(entry.name, None)
    await server.models.unload(entry)
    if entry.stored is not None:
        await asyncio.to_thread(ModelStore().delete, ModelName.parse(entry.stored.name))
    elif pulled is not None:
        await asyncio.to_thread(resolve.remove, pulled)
    reload(server.models)


def has_name_of_its_own(entry: Entry) -> bool:
    """Whether it was made by /api/create or /api/copy under this name; a preset may be of a model that was."""
    return entry.stored is not None and entry.name == str(ModelName.parse(entry.stored.name))


async def receive(request: web.Request, digest: str) -> None:
    """Store the body as the blob `digest`; nothing stays if it is another, or comes to no end. Raises RequestError."""
    with ModelStore().upload(digest) as blob:
        blob.check_room(request.content_length or 0)
        async for data in request.content.iter_chunked(CHUNK_BYTES):
            await asyncio.to_thread(blob.write, data)
        await asyncio.to_thread(blob.finish)
