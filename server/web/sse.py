"""Streams of answers to clients: server-sent events, and what they have in common with lines of JSON."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from ggpy.errors import GgpyError
from ggpy.server.errors import ErrorInfo, info_of, unforeseen
from ggpy.server.web import patience
from ggpy.server.web.recordings import CURRENT
from ggpy.server.web.running import RUNNING

CONTENT_TYPE = "text/event-stream"
DONE = b"data: [DONE]\n\n"
PING = b":\n\n"                 # a comment, which clients skip
DEFAULT_PING_S = 30
SMALL = 2**14           # bytes that the transport takes at once if it holds none

logger = logging.getLogger("ggpy")

_encode = msgspec.json.Encoder().encode


def frame(data: Any, event: str | None = None) -> bytes:
    """One event that holds `data` as JSON."""
    name = b"" if event is None else b"event: " + event.encode() + b"\n"
    return name + b"data: " + _encode(data) + b"\n\n"


async def send_frames(request: web.Request, frames: AsyncGenerator[bytes, None], *,
                      error_frame: Callable[[ErrorInfo], bytes], content_type: str = CONTENT_TYPE,
                      ping: bytes | None = PING, ping_s: float = DEFAULT_PING_S) -> web.StreamResponse:
    """Send `frames` as they come, `ping` when none came for `ping_s` seconds (negative: never).

    Nothing is sent before the first frame or ping, so an error before it is raised, with a status of its own; a later
    one is the last frame, as is the end of the server. When the client goes away, aiohttp cancels this, which
    closes `frames`; a stream that is recorded goes on without a client, until it is stopped.
    """
    output = Output(request, Stream(headers={"Content-Type": content_type, "Cache-Control": "no-cache",
                                             "X-Accel-Buffering": "no"}))
    try:
        pinger = None if ping is None or ping_s <= 0 else Pinger(output, ping, ping_s)
        try:
            await _send(output, frames, error_frame, pinger)
        finally:
            if pinger is not None:
                pinger.stop()
        await output.end()
    except (ConnectionError, TimeoutError):
        pass                # nobody reads any more
    except asyncio.CancelledError:
        ended = request.app[RUNNING].claim_cancellation() if output.is_begun and RUNNING in request.app else None
        if ended is None and not output.is_stopped:
            raise
        with suppress(ConnectionError, TimeoutError):
            if ended is not None:
                await output.write(error_frame(info_of(ended)))
            await output.end()
    finally:
        await frames.aclose()
    return output.response


class Stream(web.StreamResponse):
    """A response whose head goes with what is written first, in one packet."""

    _send_headers_immediately = False


class Output:
    """Where a stream goes: to a client, which may be absent if it is recorded.

    Its head is sent before what is written first. The methods raise ConnectionError and TimeoutError if there is nobody
    who reads, now or later.
    """

    def __init__(self, request: web.Request, response: web.StreamResponse) -> None:
        self.response = response
        self._request = request
        self._recording = CURRENT.get()
        self._is_gone = False       # the client
        self._beginning = asyncio.Lock()
        self.is_begun = False       # the head is sent, or is being sent

    @property
    def what(self) -> str:
        """Who asked for it how, for logs."""
        return f"{self._request.method} {self._request.path}"

    @property
    def is_stopped(self) -> bool:
        """Whether it ends because the client said so in another request."""
        return self.is_begun and self._recording is not None and self._recording.is_stopped

    async def write(self, data: bytes) -> None:
        if not self.response.prepared:
            await self._begin()
        if self._recording is not None:
            self._recording.add(data)
        if not self._is_gone:
            await self._sent(self.response.write(data), len(data))

    async def end(self) -> None:
        if not self.response.prepared:
            await self._begin()
        if not self._is_gone:
            await self._sent(self.response.write_eof())

    async def _begin(self) -> None:
        async with self._beginning:     # the ping and the first frame may come at the same time
            if not self.is_begun:
                self.is_begun = True
                await self._sent(self.response.prepare(self._request))

    async def _sent(self, sending: Awaitable[object], n_bytes: int = 0) -> None:
        transport = self._request.transport
        try:
            if n_bytes < SMALL and transport is not None and not transport.get_write_buffer_size():
                await sending           # it need not wait for the client, so a clock would be for nothing
                return
            async with patience.patience(self._request, patience.UNREAD_S):
                await sending
        except (ConnectionError, TimeoutError) as error:
            # what the transport still holds for somebody who does not read goes with it
            if isinstance(error, TimeoutError) and self._request.transport is not None:
                self._request.transport.abort()
            if self._recording is None:
                raise
            self._is_gone = True


async def _send(output: Output, frames: AsyncGenerator[bytes, None], error_frame: Callable[[ErrorInfo], bytes],
                pinger: Pinger | None) -> None:
    try:
        async for data in frames:
            if pinger is not None:
                pinger.put_off()
            await output.write(data)
    except GgpyError as error:
        if not output.is_begun:
            raise
        await output.write(error_frame(info_of(error)))
    except (ConnectionError, TimeoutError):
        raise
    except Exception as error:
        if not output.is_begun:
            raise
        logger.exception("%s failed", output.what)
        await output.write(error_frame(unforeseen(error)))


class Pinger:
    """Writes `ping` whenever nothing else was written for `ping_s` seconds."""

    def __init__(self, output: Output, ping: bytes, ping_s: float) -> None:
        self._output, self._ping, self._ping_s = output, ping, ping_s
        self._loop = asyncio.get_running_loop()
        self._last_s = self._loop.time()
        self._task = self._loop.create_task(self._run())

    def put_off(self) -> None:
        """Something else is written now."""
        self._last_s = self._loop.time()

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        with suppress(ConnectionError, TimeoutError):
            while True:
                wait_s = self._last_s + self._ping_s - self._loop.time()
                if wait_s <= 0:
                    await self._output.write(self._ping)
                    self.put_off()
                else:
                    await asyncio.sleep(wait_s)
