"""Ollama's /api/pull: models of the catalogue and of Hugging Face, with news of how far they are."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from ggpy.errors import PullError, RequestError
from ggpy.hub.catalogue import CatalogueEntry
from ggpy.hub.model_names import ModelName
from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.model_pool.downloads import Arrived, Pullable, fetched, find_pullable, reload
from ggpy.server.ollama.lines import Line, ollama_body, read_body, respond
from ggpy.server.ollama.names import is_here, known_entry, model_field
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route

DIGEST_SHOWN = 12       # characters of it in a line


def routes(server: Server) -> list[Route]:
    """/api/pull, and /api/push, which there is nowhere to."""
    async def pull(request: web.Request) -> web.StreamResponse:
        fields = await read_body(request)
        lines = pulling(server, model_field(fields))
        return await progress_response(request, lines, is_stream=fields.boolean("stream", default=True))

    async def push(request: web.Request) -> web.StreamResponse:
        raise NotSupportedError("this server does not push models anywhere")

    return [Route("POST", "/api/pull", pull, ollama_body, changes_server=True),
            Route("POST", "/api/push", push, ollama_body)]


async def progress_response(request: web.Request, lines: AsyncGenerator[Line, None], *,
                            is_stream: bool) -> web.StreamResponse:
    """All lines as they come, or the last one alone."""
    if is_stream:
        return await respond(request, lines)
    last: Line = {}
    async with aclosing(lines):
        async for line in lines:
            last = line
    return json_response(last)


async def pulling(server: Server, name: str) -> AsyncGenerator[Line, None]:
    """Bring the model called `name` onto this machine. Raises PullError, also for an unknown one."""
    yield {"status": "pulling manifest"}
    entry = known_entry(server, name)
    if entry is None or not is_here(entry):
        wanted = pullable(name)
        if server.models.is_single:
            raise NotSupportedError(f"this server serves {server.models.single.name} alone; start it without a model")
        if server.settings.is_offline:
            raise PullError(f"pull model manifest: {name} is not on this machine, and the server is --offline")
        async with aclosing(fetched(wanted)) as news:
            async for arrived in news:
                yield progress_line(wanted, arrived)
        reload(server.models)
    for status in ("verifying sha256 digest", "writing manifest", "success"):
        yield {"status": status}


def pullable(name: str) -> Pullable:
    """What `name` stands for. Raises PullError if it is nothing that can be pulled."""
    found = find_pullable(name)
    if found is not None:
        return found
    try:
        ModelName.parse(name)
    except RequestError as error:
        raise PullError(f"pull model manifest: {error}") from error
    raise PullError(f"pull model manifest: file does not exist: {name}; this server pulls the models that `ggpy list` "
                    "shows, and hf.co/user/repo[:QUANT]")


def progress_line(wanted: Pullable, arrived: Arrived) -> Line:
    """How far it is; a model of Hugging Face may be several files, so it goes by its name."""
    line: Line = {"status": f"pulling {wanted}", "total": arrived.total}
    if isinstance(wanted, CatalogueEntry):
        line |= {"status": f"pulling {wanted.sha256[:DIGEST_SHOWN]}", "digest": f"sha256:{wanted.sha256}"}
    return {**line, "completed": arrived.done} if arrived.done else line
