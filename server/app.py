"""The aiohttp application: what is checked of every request, and the routes of every dialect."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from aiohttp import HttpVersion11, web

from ggpy.errors import GgpyError, RequestError
from ggpy.server import model_list, openapi, page
from ggpy.server.anthropic import api as anthropic_api
from ggpy.server.context import Server
from ggpy.server.errors import Body, LoadingError, NotFoundError, info_of, llama_body, unforeseen
from ggpy.server.llama import api as llama_api
from ggpy.server.llama import streams, vertex
from ggpy.server.ollama import api as ollama_api
from ggpy.server.openai import api as openai_api
from ggpy.server.security import check_host, check_key, cors_headers
from ggpy.server.web.lanes import Lanes
from ggpy.server.web.origins import check_origin
from ggpy.server.web.patience import PATIENCE_S
from ggpy.server.web.replies import error_response
from ggpy.server.web.routes import ROUTES, Handler, Route
from ggpy.server.web.running import RUNNING, Running

# in the order in which routes are looked for; the page's are the last: they may serve any path
DIALECTS: tuple[tuple[str, Callable[[Server], Sequence[Route]]], ...] = (
    ("llama-server", llama_api.routes), ("OpenAI", model_list.routes), ("OpenAI", openai_api.routes),
    ("Anthropic", anthropic_api.routes), ("Ollama", ollama_api.routes), ("llama-server", vertex.routes),
    ("llama-server", openapi.routes), ("llama-server", page.routes),
)
# served while the model loads, and whatever its state
ALWAYS = frozenset({"", "/", "/models", "/v1/models", "/api/version", "/api/status", "/api/tags", "/api/ps"})
WAITING = "/api/"       # clients of Ollama do not come again: their requests wait until the model is there

logger = logging.getLogger("ggpy")


def make_app(server: Server) -> web.Application:
    """The application that serves `server`."""
    served: dict[Any, Route] = {}       # by the handler that aiohttp knows
    app = web.Application(middlewares=[guard(server, served)], client_max_size=server.settings.max_body_bytes,
                          handler_args={"auto_decompress": False})     # a handler's error has the words of its dialect

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update({"Server": "llama.cpp", **cors_headers(request, server.settings)})

    async def stop_recordings(_: web.Application) -> None:
        server.recordings.stop_all()

    async def make_lanes(_: web.Application) -> None:
        asyncio.get_running_loop().set_default_executor(Lanes())

    app.on_startup.append(make_lanes)
    app.on_response_prepare.append(add_headers)
    app.on_cleanup.append(stop_recordings)
    app[PATIENCE_S] = server.settings.timeout_s
    app[RUNNING] = server.running
    app[ROUTES] = served
    for dialect, routes in DIALECTS:
        for route in routes(server):
            handler = handler_of(route, server.running)
            if route.method == "POST":
                handler = streams.recorded(server, handler, route.error_body)
            served[handler] = replace(route, dialect=dialect)
            app.router.add_route(route.method, server.settings.api_prefix + route.path, handler,
                                 expect_handler=let_send)
    return app


def handler_of(route: Route, running: Running) -> Handler:
    """The handler of `route`, whose errors are told as its dialect does. What is posted is waited for at the end."""
    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            with running.entered() if route.method == "POST" else nullcontext():
                return await route.handler(request)
        except GgpyError as error:
            return refusal(error, route.error_body)
        except web.RequestPayloadError as error:
            response = refusal(RequestError(f"the body cannot be read: {error}"), route.error_body)
            response.force_close()      # where the next request begins is not known
            return response
        except asyncio.CancelledError:
            ended = running.claim_cancellation()
            if ended is None:
                raise
            return refusal(ended, route.error_body)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            return failure(request, error, route.error_body)

    return handler


async def let_send(request: web.Request) -> None:
    """Tell a client that waits before it sends its body to go on; what else one expects is of no account."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version == HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0      # the reply has not begun


def refusal(error: GgpyError, body: Body = llama_body) -> web.Response:
    return error_response(info_of(error), body)


def failure(request: web.Request, error: Exception, body: Body = llama_body) -> web.Response:
    """What is told of an error that nobody has foreseen, which is logged."""
    logger.error("%s %s failed", request.method, request.path, exc_info=error)
    return error_response(unforeseen(error), body)


def guard(server: Server, served: Mapping[Any, Route]) -> Callable[..., Awaitable[web.StreamResponse]]:
    """What is checked before any route: in this order, which llama-server has too. `served` are by handler."""
    settings = server.settings

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        route = served.get(request.match_info.handler)
        body = llama_body if route is None else route.error_body
        try:
            check_host(request, settings)
            if request.method == "OPTIONS":
                return web.Response(content_type="text/html")
            path = request.path.removeprefix(settings.api_prefix)
            check_state(server, request, path)
            check_key(request, settings, path)
            check_origin(request, settings, changes_server=route is not None and route.changes_server)
            if request.match_info.http_exception is not None:
                raise NotFoundError("File Not Found")
            return await handler(request)
        except GgpyError as error:
            return refusal(error, body)
        except (web.HTTPException, ConnectionError):
            raise
        except Exception as error:
            return failure(request, error, body)

    return middleware


def check_state(server: Server, request: web.Request, path: str) -> None:
    """Raise LoadingError while the only model loads, and when the server ends."""
    if server.is_ending:
        raise LoadingError("the server ends")
    waits = path in ALWAYS or path.startswith(WAITING)
    if server.models.is_starting and not waits and not page.is_page(request, server.settings):
        raise LoadingError("Loading model")
