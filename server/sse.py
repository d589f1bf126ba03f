"""Streams of answers to clients: server-sent events, and what they have in common with lines of JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from ggpy.errors import GgpyError
from ggpy.server.errors import ErrorInfo, info_of

CONTENT_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
PING = b":\n\n"                 # a comment, which clients skip
DEFAULT_PING_S = 30

_encode = msgspec.json.Encoder().encode


def frame(data: Any, event: str | None = None) -> bytes:
    """One event that holds `data` as JSON."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + _encode(data) + b"\n\n"


async def respond(request: web.Request, frames: AsyncGenerator[bytes, None], *,
                  error_frame: Callable[[ErrorInfo], bytes], content_type: str = CONTENT_TYPE,
                  ping: bytes | None = PING, ping_s: float = DEFAULT_PING_S) -> web.StreamResponse:
    """Send `frames` as they come, `ping` when none came for `ping_s` seconds (negative: never).

    The first frame is waited for before anything is sent, so an error before it is raised, with a status of its own;
    a later one is the last frame. When the client goes away, aiohttp cancels this, which closes `frames`.
    """
    response = web.StreamResponse(headers={"Content-Type": content_type, "Cache-Control": "no-cache",
                                           "X-Accel-Buffering": "no"})
    try:
        first = await anext(frames, None)
        await response.prepare(request)
        pinger = None if ping is None or ping_s <= 0 else Pinger(response, ping, ping_s)
        try:
            await _send(response, first, frames, error_frame, pinger)
        finally:
            if pinger is not None:
                pinger.stop()
        await response.write_eof()
    except ConnectionError:
        pass                # nobody reads any more
    finally:
        await frames.aclose()
    return response


async def _send(response: web.StreamResponse, first: bytes | None, frames: AsyncGenerator[bytes, None],
                error_frame: Callable[[ErrorInfo], bytes], pinger: Pinger | None) -> None:
    if first is not None:
        await response.write(first)
    try:
        async for data in frames:
            if pinger is not None:
                pinger.put_off()
            await response.write(data)
    except GgpyError as error:
        await response.write(error_frame(info_of(error)))


class Pinger:
    """Writes `ping` to a response whenever nothing else was written for `ping_s` seconds."""

    def __init__(self, response: web.StreamResponse, ping: bytes, ping_s: float) -> None:
        self._response, self._ping, self._ping_s = response, ping, ping_s
        self._loop = asyncio.get_running_loop()
        self._last_s = self._loop.time()
        self._task = self._loop.create_task(self._run())

    def put_off(self) -> None:
        """Something else is written now."""
        self._last_s = self._loop.time()

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        with suppress(ConnectionError):
            while True:
                wait_s = self._last_s + self._ping_s - self._loop.time()
                if wait_s <= 0:
                    await self._response.write(self._ping)
                    self.put_off()
                else:
                    await asyncio.sleep(wait_s)
