"""llama-server's streams that can be read again: requests with X-Conversation-Id, and /v1/stream."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.errors import Body, LoadingError, NotFoundError, info_of
from ggpy.server.web import sse
from ggpy.server.web.fields import read_fields
from ggpy.server.web.recordings import CURRENT, Recording
from ggpy.server.web.replies import error_response, json_response
from ggpy.server.web.routes import Handler, Route

HEADER = "X-Conversation-Id"


def routes(server: Server) -> list[Route]:
    """/v1/stream and /v1/streams/lookup."""
    async def read(request: web.Request) -> web.StreamResponse:
        name, start = wanted_name(request), request.query.get("from", "0")
        recording = server.recordings.find(name)
        if recording is None:
            raise NotFoundError("Stream not found or expired")
        if not recording.n_bytes and any(entry.loading for entry in server.models.entries.values()):
            raise LoadingError("Stream owner model is loading, retry later")
        if not start.isdecimal() or len(start) > 18:
            raise RequestError(f"Invalid 'from' offset: expected a number of bytes, found {start!r:.40}")
        if int(start) < recording.n_lost:
            raise RequestError(f"Stream offset lost, please restart: the first {recording.n_lost:,} bytes are not kept")
        return await sse.send_frames(request, recording.read(int(start)), error_frame=lambda _: b"", ping=None)

    async def lookup(request: web.Request) -> web.Response:
        names = [name for name in (await read_fields(request)).texts("conversation_ids") if name]
        return json_response([{
            "conversation_id": found.name, "is_done": found.is_done, "total_bytes": found.n_bytes,
            "started_at": found.started_s, "completed_at": found.completed_s} for found in server.recordings.of(names)])

    async def stop(request: web.Request) -> web.Response:
        server.recordings.stop(wanted_name(request))
        return web.Response(status=204)

    return [Route("GET", "/v1/stream", read), Route("DELETE", "/v1/stream", stop),
            Route("POST", "/v1/streams/lookup", lookup)]


def wanted_name(request: web.Request) -> str:
    name = request.query.get("conv_id")
    if not name:
        raise RequestError("Missing conversation id: expected conv_id in the query")
    return name


def recorded(server: Server, handler: Handler, body: Body) -> Handler:
    """`handler`, whose requests go on without their client if they name a conversation. `body` is that of errors."""
    async def wrapped(request: web.Request) -> web.StreamResponse:
        name = request.headers.get(HEADER)
        if not name:
            return await handler(request)
        recording = server.recordings.begin(name)

        async def answered() -> web.StreamResponse:
            CURRENT.set(recording)
            return await handler(request)

        recording.task = asyncio.get_running_loop().create_task(answered())
        recording.task.add_done_callback(lambda task: ended(server, recording, task))
        try:
            return await asyncio.shield(recording.task)
        except asyncio.CancelledError:
            if not recording.is_stopped:
                raise           # the client is gone
            return error_response(info_of(RequestError("the request was cancelled by a stop before its stream began")),
                                  body)

    return wrapped


def ended(server: Server, recording: Recording, task: asyncio.Task[web.StreamResponse]) -> None:
    """A request has come to its end; if it sent no stream, there is nothing to read again."""
    if not task.cancelled():
        task.exception()        # a connection that is gone
    recording.end()
    if not recording.n_bytes:
        server.recordings.drop(recording)
