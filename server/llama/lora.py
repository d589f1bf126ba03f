"""llama-server's routes about LoRA adapters, and how much of each a request asks for."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from ggpy.backends.base import Scales
from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.errors import FieldError
from ggpy.server.fields import Fields, named, read_json
from ggpy.server.replies import json_response
from ggpy.server.routes import Route

MAX_SCALES = 4096       # of one request


def routes(server: Server) -> list[Route]:
    """/lora-adapters."""
    async def adapters(request: web.Request) -> web.Response:
        async with server.models.use(request.query.get("model")) as model:
            found = await model.client.adapters()
        return json_response([{"id": i, "path": info.path, "scale": info.scale, "task_name": info.task_name,
                               "prompt_prefix": info.prompt_prefix} for i, info in enumerate(found)])

    async def set_scales(request: web.Request) -> web.Response:
        value = await read_json(request)
        if not isinstance(value, list):
            raise RequestError(f"Request body must be an array, found {named(value)}")
        async with server.models.use(request.query.get("model")) as model:
            await model.client.set_adapters(read_scales(value))
        return json_response({"success": True})

    return [Route("GET", "/lora-adapters", adapters), Route("POST", "/lora-adapters", set_scales)]


def lora_scales(fields: Fields) -> Scales | None:
    """What field `lora` says of each adapter; those that it does not name get nothing. None: as is usual."""
    value = fields.array("lora")
    return None if value is None else read_scales(value)


def read_scales(value: list[Any]) -> Scales:
    """Adapters and their scales. Raises FieldError."""
    if len(value) > MAX_SCALES:
        raise FieldError("lora", f"{len(value):,} scales are too many; expected {MAX_SCALES:,} at most")
    scales = []
    for item in Fields({"lora": value}).objects("lora"):
        adapter = item.integer("id")
        if adapter is None:
            raise item.missing("id")
        scales.append((adapter, item.number("scale", default=0.0)))
    return tuple(scales)
