"""llama-server's routes about LoRA adapters."""

from __future__ import annotations

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.jobs.job_fields import read_scales
from ggpy.server.web.fields import named, read_json
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


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

    return [Route("GET", "/lora-adapters", adapters),
            Route("POST", "/lora-adapters", set_scales, changes_server=True)]
