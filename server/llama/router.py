"""llama-server's routes of a server with several models: which there are, loading and unloading."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError, llama_body
from ggpy.server.model_pool.models import Entry
from ggpy.server.web import sse
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/models/load, /models/unload and /models/sse; none if there is one model."""
    if server.models.is_single:
        return []

    async def load(request: web.Request) -> web.Response:
        entry = wanted(server, await read_fields(request))
        if entry.loaded is not None or entry.loading is not None:
            raise RequestError("model is already running")
        server.start(server.models.load(entry))
        return json_response({"success": True})

    async def unload(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        entry = server.models.asked(fields.text("model"))
        if entry.loaded is None and entry.loading is None and entry.download is None:
            raise RequestError("model is not running")
        if entry.download is not None:
            entry.download.cancel()
        server.start(server.models.unload(entry))
        return json_response({"success": True})

    async def news(request: web.Request) -> web.StreamResponse:
        return await sse.send_frames(request, events(server), error_frame=lambda info: sse.frame(llama_body(info)),
                                     ping_s=server.settings.sse_ping_s)

    return [Route("POST", "/models/load", load, changes_server=True),
            Route("POST", "/models/unload", unload, changes_server=True), Route("GET", "/models/sse", news)]


def wanted(server: Server, fields: Fields) -> Entry:
    """The model that a request names. Raises NotFoundError."""
    name = fields.text("model")
    if name is None:
        raise fields.missing("model")
    try:
        return server.models.find(name)
    except (RequestError, NotFoundError) as error:
        raise NotFoundError("model is not found") from error


async def events(server: Server) -> AsyncGenerator[bytes, None]:
    """What happens to models; the first is a comment, so that a client knows that it is heard."""
    async with server.models.news() as queue:
        yield sse.PING
        while True:
            yield sse.frame(await queue.get())


def router_props(server: Server, fingerprint: str) -> dict[str, Any]:
    """/props of the server as a whole."""
    return {"role": "router", "max_instances": server.settings.models_max,
            "models_autoload": server.settings.autoload, "model_alias": "llama-server", "model_path": "none",
            "default_generation_settings": {"params": {}, "n_ctx": 0}, "ui_settings": {}, "build_info": fingerprint,
            "cors_proxy_enabled": False}
