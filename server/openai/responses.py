"""OpenAI's responses: /v1/responses. Nothing is stored; `responses_input.py` says what that means."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from aiohttp import web

from ggpy.server.chat.core import PreparedChat, prepare, stream_chat
from ggpy.server.chat.request import read_chat
from ggpy.server.context import Server
from ggpy.server.errors import ErrorInfo, NotFoundError
from ggpy.server.jobs.job_fields import read_ping_s
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.openai.responses_input import chat_fields
from ggpy.server.openai.responses_output import ResponseWriter
from ggpy.server.web import lanes, sse
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/v1/responses and what belongs to it, also without /v1."""
    async def respond(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            chat = await read(fields, model)
            is_stream = fields.boolean("stream", default=False)
            writer = ResponseWriter(model, chat, fields, has_progress=chat.job.tells_progress,
                                    has_timings=fields.boolean("timings_per_token", default=False))
            if not is_stream:
                return json_response(await whole(model, chat, writer))
            ping_s = read_ping_s(fields, server.settings)

            def failed(info: ErrorInfo) -> bytes:
                return frame(writer.fail(info))

            return await sse.send_frames(request, frames(model, chat, writer), error_frame=failed, ping_s=ping_s)

    async def read(fields: Fields, model: LoadedModel, *, must_fit: bool = True) -> PreparedChat:
        asked = await lanes.read(lambda: read_chat(chat_fields(fields), server, model))
        return await prepare(model, asked, must_fit=must_fit)

    async def input_tokens(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            chat = await read(fields, model, must_fit=False)
            return json_response({"object": "response.input_tokens", "input_tokens": chat.n_tokens})

    async def stored(request: web.Request) -> web.Response:
        raise NotFoundError(f"there is no response '{request.match_info['id']:.80}': this server stores none")

    handlers = [("POST", "", respond), ("POST", "/input_tokens", input_tokens), ("GET", "/{id}", stored),
                ("DELETE", "/{id}", stored), ("POST", "/{id}/cancel", stored), ("GET", "/{id}/input_items", stored)]
    return [Route(method, f"{prefix}/responses{path}", handler)
            for prefix in ("", "/v1") for method, path, handler in handlers]


async def whole(model: LoadedModel, chat: PreparedChat, writer: ResponseWriter) -> dict[str, Any]:
    """The response in one piece."""
    timings: dict[str, Any] = {}
    async with aclosing(stream_chat(model, chat)) as deltas:
        async for delta in deltas:
            for event in writer.add(delta):
                timings = event.get("timings", timings)
    return {**writer.response, "timings": timings}


async def frames(model: LoadedModel, chat: PreparedChat, writer: ResponseWriter) -> AsyncGenerator[bytes, None]:
    """The events of a stream; there is no [DONE]."""
    is_begun = False
    async with aclosing(stream_chat(model, chat)) as deltas:
        async for delta in deltas:
            if not is_begun:        # now nothing is wrong with the request
                for event in writer.begin():
                    yield frame(event)
                is_begun = True
            for event in writer.add(delta):
                yield frame(event)


def frame(event: dict[str, Any]) -> bytes:
    return sse.frame(event, event["type"])
