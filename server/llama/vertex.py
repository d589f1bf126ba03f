"""The prediction protocol of Google's Vertex AI, which llama-server speaks in its containers: AIP_MODE=PREDICTION.

Each instance of a request names a route, as "chatCompletions" or by its path, and is that route's body.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import msgspec
from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.errors import info_of, llama_body
from ggpy.server.web.fields import read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import ROUTES, Handler, Route

MAX_INSTANCES = 128


def routes(server: Server) -> list[Route]:
    """The paths that the container is told to serve; none elsewhere."""
    settings = server.settings

    async def predict(request: web.Request) -> web.Response:
        unread = request.clone()        # requests are cloned before they are read
        instances = (await read_fields(request)).array("instances")
        if instances is None:
            raise RequestError("request body must include an array field named instances")
        if len(instances) > MAX_INSTANCES:
            raise RequestError(f"instances array exceeds maximum size of {MAX_INSTANCES}")
        known = handlers(request.app, settings.api_prefix)
        return json_response({"predictions": await asyncio.gather(*(
            prediction(request, unread, known, instance) for instance in instances))})

    async def health(request: web.Request) -> web.Response:
        return json_response({"status": "ok"})

    served = [] if settings.predict_path is None else [Route("POST", settings.predict_path, predict)]
    return served + ([] if settings.health_path is None else [Route("GET", settings.health_path, health)])


def handlers(app: web.Application, prefix: str) -> dict[str, Handler]:
    """Those of POST that change nothing, by path and by the name that instances may use."""
    found: dict[str, Handler] = {}
    served = app[ROUTES]
    for route in app.router.routes():
        if route.method == "POST" and route.resource is not None and not served[route.handler].changes_server:
            path = route.resource.canonical.removeprefix(prefix)
            found[path] = found[format_of(path)] = route.handler
    return found


def format_of(path: str) -> str:
    """"chatCompletions" of "/v1/chat/completions"."""
    words = re.split(r"[/_-]", path.removeprefix("/v1").lstrip("/").partition("{")[0])
    return words[0] + "".join(word[:1].upper() + word[1:] for word in words[1:])


async def prediction(request: web.Request, unread: web.Request, known: dict[str, Handler], instance: Any) -> Any:
    """What the route says that `instance` is for, or why nothing."""
    name = instance.get("@requestFormat") if isinstance(instance, dict) else None
    if not isinstance(name, str):
        return refused("each instance must be an object with a string @requestFormat")
    if name not in known:
        return refused(f"no handler registered for @requestFormat: {name:.80}")
    body = {field: value for field, value in instance.items() if field != "@requestFormat"}
    inner = unread.clone()
    # aiohttp has no public way to give a request a body
    inner._match_info, inner._read_bytes = request.match_info, msgspec.json.encode({**body, "stream": False})
    reply = await known[name](inner)
    return json.loads(reply.body) if isinstance(reply, web.Response) and isinstance(reply.body, bytes) else None


def refused(message: str) -> Any:
    return llama_body(info_of(RequestError(message)))
