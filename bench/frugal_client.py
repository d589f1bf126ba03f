"""A client that takes as little of the processor as it can: it shares it with the server that is measured."""

from __future__ import annotations

import asyncio
import json
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from urllib.parse import urlsplit

from ggpy.tools.bench_serve_targets import Answer, Server

Piece = tuple[float, bytes]         # when it came, and what


class Arrivals(asyncio.Protocol):
    """Sends one request, and notes what comes back and when."""

    def __init__(self, request: bytes) -> None:
        self.pieces: list[Piece] = []
        self.ended = asyncio.get_running_loop().create_future()
        self._request = request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.perf_counter(), data))

    def connection_lost(self, error: Exception | None) -> None:
        self.ended.set_result(error)


class FrugalClient:
    """Asks what `server` asks. An answer is taken apart when all of it is there, by the times at which it came."""

    def __init__(self, server: Server) -> None:
        self.name, self.lacks = server.name, server.lacks
        self._server = server
        self._address = urlsplit(server.url)

    async def words(self) -> list[int]:
        return await self._server.words()

    async def n_ctx(self) -> int | None:
        return await self._server.n_ctx()

    async def n_preempted(self) -> int | None:
        return await self._server.n_preempted()

    async def complete(self, prompt: Sequence[int], n_output: int, answer: Answer | None = None) -> Answer:
        answer = Answer() if answer is None else answer
        path, body = self._server._request(prompt, n_output)
        data = json.dumps(body).encode()
        head = (f"POST {path} HTTP/1.1\r\nHost: {self._address.netloc}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n")
        _, arrivals = await asyncio.get_running_loop().create_connection(
            lambda: Arrivals(head.encode() + data), self._address.hostname or "", self._address.port or 80)
        error = await arrivals.ended
        if error is not None or not arrivals.pieces:
            answer.problem, answer.message = "failed", f"the connection ended: {error}"
            return answer
        for time_s, line in lines(arrivals.pieces):
            if (event := self._server._event(line)) is not None:
                self._server._read(event, answer, time_s)
        return answer


def lines(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The lines of a reply in chunks, and when all of each one's chunk was there.

    Raises SystemExit for any other reply.
    """
    times_s = [time_s for time_s, _ in pieces]
    ends = list(accumulate(len(data) for _, data in pieces))
    data = b"".join(data for _, data in pieces)
    head, found, _ = data.partition(b"\r\n\r\n")
    if not found or b" 200 " not in head.split(b"\r\n")[0]:
        raise SystemExit(f"the server answers {data[:500]!r}")
    start = len(head) + 4
    while True:
        size, _, _ = data[start : start + 20].partition(b"\r\n")
        begin = start + len(size) + 2
        end = begin + int(size, 16)
        if end == begin:
            return
        time_s = times_s[bisect_left(ends, end)]
        yield from ((time_s, line) for line in data[begin:end].splitlines() if line)
        start = end + 2
