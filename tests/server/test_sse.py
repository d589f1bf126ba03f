"""Streams: what a client gets while it waits for the first frame, and how errors are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from aiohttp import ClientResponse, ClientSession, web

from ggpy.errors import RequestError
from ggpy.server.app import refusal
from ggpy.server.web import sse

Frames = Callable[[asyncio.Event], AsyncGenerator[bytes, None]]


async def asked(frames: Frames, look: Callable[[ClientResponse, asyncio.Event], Awaitable[None]],
                ping_s: float) -> None:
    """Serve `frames`, which may wait for an event that `look` at the response sets."""
    go_on = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        try:
            return await sse.send_frames(request, frames(go_on), error_frame=lambda info: info.message.encode(),
                                     ping_s=ping_s)
        except RequestError as error:
            return refusal(error)

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{runner.addresses[0][1]}/") as response:
            await look(response, go_on)
    finally:
        await runner.cleanup()


def test_aiohttp_knows_what_holds_a_head_back() -> None:
    """It is private there; under another name every head would be a packet of its own, and nothing would say so."""
    assert web.StreamResponse._send_headers_immediately is True
    assert sse.Stream._send_headers_immediately is False


def test_pings_come_before_the_first_frame() -> None:
    """A long prompt would else look like a dead connection."""
    async def frames(go_on: asyncio.Event) -> AsyncGenerator[bytes, None]:
        await go_on.wait()
        yield b"data: 1\n\n"

    async def look(response: ClientResponse, go_on: asyncio.Event) -> None:
        assert response.status == 200
        assert await response.content.readexactly(3) == sse.PING
        go_on.set()
        assert (await response.read()).endswith(b"data: 1\n\n")

    asyncio.run(asked(frames, look, 0.01))


@pytest.mark.parametrize(("ping_s", "status"), [(60.0, 400), (0.01, 200)])
def test_an_error_has_a_status_unless_a_ping_was_sent(ping_s: float, status: int) -> None:
    """Behind a ping it is the last frame."""
    async def frames(go_on: asyncio.Event) -> AsyncGenerator[bytes, None]:
        if status == 200:
            await go_on.wait()
        raise RequestError("no such thing")
        yield b""

    async def look(response: ClientResponse, go_on: asyncio.Event) -> None:
        assert response.status == status
        go_on.set()
        assert b"no such thing" in await response.read()

    asyncio.run(asked(frames, look, ping_s))


def test_a_failure_behind_the_first_frame_is_the_last_one() -> None:
    """No second head is written into the body."""
    async def frames(_: asyncio.Event) -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        raise ZeroDivisionError

    async def look(response: ClientResponse, _: asyncio.Event) -> None:
        assert response.status == 200
        assert await response.read() == b"data: 1\n\nthe server failed (ZeroDivisionError)"

    asyncio.run(asked(frames, look, 60.0))


def test_a_stream_without_frames_is_whole() -> None:
    """It has a head and an end."""
    async def frames(_: asyncio.Event) -> AsyncGenerator[bytes, None]:
        nothing: tuple[bytes, ...] = ()
        for data in nothing:
            yield data

    async def look(response: ClientResponse, _: asyncio.Event) -> None:
        assert (response.status, await response.read()) == (200, b"")

    asyncio.run(asked(frames, look, 60.0))
