"""llama-server's routes about LoRA adapters."""

from __future__ import annotations

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.errors import FieldError
from ggpy.server.fields import Fields, named, read_json
from ggpy.server.replies import json_response
from ggpy.server.routes import Route


def routes(server: Server) -> list[Route]:
    """/lora-adapters."""
    async def adapters(request: web.Request) -> web.Response:
        return json_response([])

    async def set_scales(request: web.Request) -> web.Response:
        value = await read_json(request)
        if not isinstance(value, list):
            raise RequestError(f"Request body must be an array, found {named(value)}")
        for scale in Fields({"": value}).objects(""):
            check_adapter(scale)
        return json_response({"success": True})

    return [Route("GET", "/lora-adapters", adapters), Route("POST", "/lora-adapters", set_scales)]


def check_adapter(scale: Fields) -> None:
    """Raise FieldError: there is no adapter of any id."""
    adapter = scale.integer("id")
    raise FieldError("id", f"there is no adapter {adapter}; this server was started without any")
