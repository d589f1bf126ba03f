"""Clients that come and go, read slowly or not at all: nobody else notices, and nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import http.client
import json
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ggpy.engine import async_client
from ggpy.engine.config import SamplingParams
from ggpy.loading import ModelOptions
from ggpy.server.settings import ServerSettings
from ggpy.server.web import patience
from tests.models.arch_data import load_roomy
from tests.server.conftest import TIMEOUT_S, Served
from tests.server.test_command import serving, wait_ready

N_CTX = 8192
N_AT_ONCE = 50
N_LONG = 8000                       # tokens of an answer that somebody has to cut short
KNOWN = {"prompt": "a known prompt", "n_predict": 16, "temperature": 0, "cache_prompt": False}
RESET = struct.pack("ii", 1, 0)     # closing such a socket resets the connection
LONG = {"prompt": "a", "n_predict": N_LONG, "ignore_eos": True, "stream": True}

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="descriptors are counted in /proc")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One with room for long answers."""
    model = load_roomy(tmp_path_factory.mktemp("robust"), N_CTX)
    server = Served(ServerSettings(options=ModelOptions(n_ctx=N_CTX, n_threads=1), n_slots=4, has_metrics=True,
                                   sampling_of=lambda _: SamplingParams(temperature=0)), model)
    yield server
    server.close()


@dataclass(frozen=True)
class Held:
    """What a server has in its hands."""

    n_descriptors: int
    n_tasks: int
    n_pages: float
    n_requests: float

    @classmethod
    def by(cls, served: Served) -> Held:
        text = served.get("/metrics").data.decode()
        pages = sum(map(float, re.findall(r'^ggpy:kv_pages{.*use="held".*} (.*)$', text, re.MULTILINE)))
        requests = sum(map(float, re.findall(r"^llamacpp:requests_(?:processing|deferred) (.*)$", text, re.MULTILINE)))

        async def count() -> int:
            return len(asyncio.all_tasks())

        n_tasks = asyncio.run_coroutine_threadsafe(count(), served._loop).result(TIMEOUT_S)
        return cls(len(os.listdir("/proc/self/fd")), n_tasks, pages, requests)


def settled(served: Served, expected: Callable[[Held], bool]) -> Held:
    """What `served` holds, once that is as `expected`, or after a while."""
    end_s = time.monotonic() + TIMEOUT_S
    while True:
        held = Held.by(served)
        if expected(held) or time.monotonic() > end_s:
            return held
        time.sleep(0.02)


def at_rest(served: Served) -> Held:
    """What it holds while nobody asks for anything, the least of several looks: these are connections themselves."""
    settled(served, lambda held: held.n_requests == 0)
    gc.collect()        # what earlier tests left open and lost would close some time later
    looks = [Held.by(served) for _ in range(6)]
    return Held(min(held.n_descriptors for held in looks), min(held.n_tasks for held in looks), looks[-1].n_pages,
                looks[-1].n_requests)


def head(path: str, n_bytes: int) -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {n_bytes}\r\n\r\n".encode()


def raw(path: str, body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return head(path, len(data)) + data


CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "a"}], "max_tokens": N_LONG, "stream": True}
STREAMS = [raw("/completion", LONG), raw("/v1/chat/completions", {**CHAT, "ignore_eos": True}),
           raw("/v1/messages", {**CHAT, "ignore_eos": True}),
           raw("/v1/responses", {"input": "a", "max_output_tokens": N_LONG, "stream": True, "ignore_eos": True}),
           raw("/api/generate", {"model": "tiny", "prompt": "a", "options": {"num_predict": N_LONG}})]
WHOLES = [data.replace(b'"stream": true', b'"stream":false') for data in STREAMS[:-1]]
PACKED = raw("/completion", {}).replace(b"\r\n\r\n", b"\r\nContent-Encoding: gzip\r\n\r\n")      # it says
HALVES = [b"", b"GE", b"GET /health HTTP/1.1\r\nHo", b"GET /health HTTP/1.1\r\nHost: localhost\r\n", b"\x16\x03\x01",
          head("/completion", 99), head("/completion", 99) + b'{"prompt": "',
          b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"mo"]


def drop(client: socket.socket, *, is_reset: bool) -> None:
    """Close `client`, with or without saying so first."""
    if is_reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    client.close()


def come_and_go(port: int, n: int) -> None:
    """`n` connections, several at a time: half of them drop in a head or body, others before, in or after a stream."""
    sent = [*HALVES, *STREAMS, *WHOLES[:2], b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    for start in range(0, n, N_AT_ONCE):
        clients = [socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) for _ in range(N_AT_ONCE)]
        for i, client in enumerate(clients):
            client.sendall(sent[(start + i) % len(sent)])
        for i, client in enumerate(clients):
            if i % 10 == 0 and sent[(start + i) % len(sent)] in STREAMS:
                client.recv(100)        # the stream has begun
            drop(client, is_reset=i % 2 == 0)


@pytest.mark.parametrize("n", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_connections_that_are_dropped_leave_nothing(served: Served, n: int) -> None:
    """No descriptor, no task, no page, no request; a known one is answered as before."""
    known = served.post("/completion", KNOWN).json["content"]
    before = at_rest(served)
    come_and_go(served.port, n)
    after = settled(served, lambda held: held == before)
    assert after == before
    assert not any(slot["is_processing"] for slot in served.get("/slots").json)
    assert served.post("/completion", KNOWN).json["content"] == known


def generated(served: Served) -> float:
    """Tokens that were generated so far."""
    text = served.get("/metrics").data.decode()
    return float(re.findall(r"^llamacpp:tokens_predicted_total (.*)$", text, re.MULTILINE)[0])


@pytest.mark.parametrize("request_bytes", [*STREAMS, *WHOLES])
def test_an_answer_without_a_client_is_ended(served: Served, request_bytes: bytes) -> None:
    """Long before it would end by itself, in every dialect, streamed or not."""
    before = at_rest(served)
    n_before = generated(served)
    with socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT_S) as client:
        client.sendall(request_bytes)
        assert settled(served, lambda held: held.n_requests == 1).n_requests == 1
    assert settled(served, lambda held: held == before) == before
    assert generated(served) - n_before < N_LONG / 2


def test_who_leaves_while_waiting_is_not_served(served: Served) -> None:
    """The queue is no longer than before; those who run go on."""
    before = at_rest(served)
    clients = [socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT_S) for _ in range(40)]
    for client in clients:
        client.sendall(STREAMS[0])
    assert settled(served, lambda held: held.n_requests == 40).n_requests == 40
    for client in clients[1:]:
        client.close()
    assert settled(served, lambda held: held.n_requests == 1).n_requests == 1
    assert b"200 OK" in clients[0].recv(1000)
    clients[0].close()
    assert settled(served, lambda held: held == before) == before


def test_who_leaves_while_the_prompt_is_read_is_not_served(served: Served) -> None:
    """Reading it ends with the step that runs."""
    before = at_rest(served)
    with socket.create_connection(("127.0.0.1", served.port), timeout=TIMEOUT_S) as client:
        client.sendall(raw("/completion", {"prompt": [40 + i % 50 for i in range(8000)], "n_predict": 1,
                                           "cache_prompt": False}))
        assert settled(served, lambda held: held.n_requests == 1).n_requests == 1
    assert settled(served, lambda held: held == before) == before


def not_reading(served: Served, request_bytes: bytes) -> socket.socket:
    """A client with a small buffer that has sent a request."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.settimeout(TIMEOUT_S)
    client.connect(("127.0.0.1", served.port))
    client.sendall(request_bytes)
    return client


def rest(client: socket.socket) -> bytes:
    """What comes until the connection ends, well or not."""
    found = b""
    try:
        while data := client.recv(1 << 20):
            found += data
    except ConnectionError:
        pass
    return found


SLOW = raw("/completion", {**LONG, "n_probs": 250})     # events of 20 kB


def test_who_does_not_read_holds_up_nobody_and_is_dropped(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is reset; what it had goes to others."""
    monkeypatch.setattr(patience, "UNREAD_S", 0.5)
    known = served.post("/completion", KNOWN).json["content"]
    before = at_rest(served)
    clients = [not_reading(served, SLOW) for _ in range(4)]
    for _ in range(5):
        assert served.post("/completion", KNOWN).json["content"] == known
    # the other ends of the sockets are this process's, too; the engine hears of an end after its task is gone
    left = Held(before.n_descriptors + 4, before.n_tasks, before.n_pages, 0)
    assert settled(served, lambda held: held == left) == left
    for client in clients:
        assert b'"stop":true' not in rest(client)
        client.close()
    assert settled(served, lambda held: held == before) == before


def test_a_reader_that_is_too_slow_is_told_so(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer ends when too much of it waits; what was written before arrives, and then the error."""
    monkeypatch.setattr(async_client, "MAX_UNREAD", 50)
    before = at_rest(served)
    client = not_reading(served, SLOW)
    found = client.recv(100)        # it has begun
    assert settled(served, lambda held: held.n_requests == 0).n_requests == 0
    found += rest_of_stream(client)
    assert b"50 pieces of this answer wait for a reader that is too slow" in found
    client.close()
    assert settled(served, lambda held: held == before) == before


def rest_of_stream(client: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"0\r\n\r\n") and (data := client.recv(1 << 20)):
        found += data
    return found


def test_the_end_of_the_server_waits_for_streams_of_every_dialect(tmp_path: Path) -> None:
    """Nor does it say anything of clients that sent no HTTP."""
    chat = {**CHAT, "max_tokens": 1500, "ignore_eos": True}
    asked = {"/completion": ({**LONG, "n_predict": 1500}, b'"stop":true'), "/v1/chat/completions": (chat, b"[DONE]"),
             "/v1/messages": (chat, b"message_stop"),
             "/api/generate": ({"model": "a", "prompt": "a", "options": {"num_predict": 1500}}, b'"done":true')}
    model = load_roomy(tmp_path, N_CTX)
    with serving("-m", str(model), "-c", str(4 * N_CTX), "-np", "4", "-t", "1") as (process, port):
        wait_ready(port)
        for data in (b"\x16\x03\x01\x02\r\n\r\n", PACKED):
            with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as client:
                client.sendall(data)
                assert client.recv(1000).startswith(b"HTTP/1.")
        replies = []
        for path, (body, _) in asked.items():
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
            connection.request("POST", path, json.dumps(body))
            replies.append(connection.getresponse())
        process.send_signal(signal.SIGTERM)
        for reply, (_, end) in zip(replies, asked.values(), strict=True):
            assert end in reply.read()
        assert process.wait(TIMEOUT_S) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
