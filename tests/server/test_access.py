"""Who is served: keys, origins, names of the host; and what is too much, or is no request at all."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from ggpy.loading import ModelOptions
from ggpy.server import app
from tests.server.conftest import TIMEOUT_S, Served


def test_a_key_is_needed_but_for_health(make_server: Callable[..., Served]) -> None:
    """In either header, with or without "Bearer"; an unknown path needs one too."""
    server = make_server(api_keys=frozenset({"secret", "other"}))
    assert server.get("/health").status == 200
    for path in ("/v1/models", "/props", "/nothing"):
        assert (server.get(path).status, server.get(path).error["type"]) == (401, "authentication_error")
    for headers in ({"Authorization": "Bearer secret"}, {"Authorization": "other"}, {"X-Api-Key": "secret"},
                    {"Authorization": "bearer secret"}, {"Authorization": "Basic eA==", "X-Api-Key": "secret"}):
        assert server.get("/v1/models", **headers).status == 200
    for headers in ({"Authorization": "Bearer secretx"}, {"X-Api-Key": "\xe9"}, {"Authorization": "Bearer "}):
        assert server.get("/v1/models", **headers).status == 401


def test_preflights_need_no_key(make_server: Callable[..., Served]) -> None:
    """The origin is echoed, since a browser takes no "*" with credentials."""
    server = make_server(api_keys=frozenset({"secret", "other"}))
    reply = server.ask("OPTIONS", "/completion", headers={"Origin": "https://a.example"})
    assert (reply.status, reply.data) == (200, b"")
    assert reply.headers["access-control-allow-origin"] == "https://a.example"
    assert reply.headers["access-control-allow-credentials"] == "true"
    assert reply.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"


@pytest.mark.parametrize(("origin", "is_allowed"), [
    ("http://localhost:3000", True), ("http://127.0.0.1", True), ("http://[::1]:1", True),
    ("http://a.localhost", True), ("http://localhost.evil.com", False), ("http://notlocalhost", False),
    ("http://[", False)])
def test_origins_of_this_machine_alone(make_server: Callable[..., Served], origin: str, is_allowed: bool) -> None:
    """With --cors-origins localhost."""
    headers = make_server(cors_origins="localhost").get("/health", Origin=origin).headers
    assert headers.get("access-control-allow-origin") == (origin if is_allowed else None)


@pytest.mark.parametrize(("host", "status"), [
    ("localhost:8080", 200), ("127.0.0.1", 200), ("[::1]:8080", 200), ("10.0.0.7:8080", 200), ("box.lan", 200),
    ("evil.com", 403), ("127.0.0.1.evil.com", 403), ("localhost.evil.com:8080", 403), ("[evil", 403), ("a@b", 403),
    ("[foo]", 403), ("loc\xe2\x84\x80lhost", 403)])
def test_a_name_of_anothers_is_refused(make_server: Callable[..., Served], host: str, status: int) -> None:
    """A page of the web may let its own name mean 127.0.0.1; --allowed-hosts names those that are ours."""
    server = make_server(allowed_hosts=frozenset({"box.lan"}))
    assert server.get("/health", Host=host).status == status


def test_a_failure_of_a_check_is_an_error_of_the_dialect(make_server: Callable[..., Served],
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    """As one behind the checks is."""
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    server = make_server()
    with monkeypatch.context() as patch:
        patch.setattr(app, "check_key", fail)
        assert server.get("/props").error == {
            "code": 500, "message": "the server failed (ZeroDivisionError)", "type": "server_error", "param": None}
    assert server.get("/props").status == 200


def test_a_large_body_is_413(make_server: Callable[..., Served]) -> None:
    """It says what the server would read."""
    reply = make_server(max_body_bytes=1000).post("/completion", {"prompt": "x" * 2000})
    assert reply.status == 413
    assert "1,000 bytes" in reply.error["message"]


@pytest.mark.parametrize("body", [
    b"{", b"[1]", b'"text"', b"\xff", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}', b"[" * 100_000, b'{"a":' * 5000,
    b'{"prompt": NaN}', b'{"prompt": "a", "temperature": 1e999}', b'{"prompt": "a", "seed": 1' + b"0" * 400 + b"}",
    b'{"prompt": "a", "n_predict": 99999999999999999999}', b'{"prompt": "a", "logit_bias": {"1": 1e40}}'])
def test_a_body_that_makes_no_sense_is_400(server: Served, body: bytes) -> None:
    """And the server goes on."""
    reply = server.post("/completion", body)
    assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")
    assert server.get("/health").status == 200


def test_unknown_paths_and_methods_are_404(server: Served) -> None:
    """As with llama-server."""
    for reply in (server.get("/nothing"), server.get("/completion"), server.ask("DELETE", "/health")):
        assert (reply.status, reply.error["message"]) == (404, "File Not Found")


def test_a_client_that_goes_away_frees_its_slot(server: Served) -> None:
    """Its answer would be long."""
    body = b'{"prompt": [40, 41], "n_predict": 200, "ignore_eos": true, "stream": true}'
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        head = f"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        client.sendall(head.encode() + body)
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    for _ in range(200):
        if not any(slot["is_processing"] for slot in server.get("/slots").json):
            return
    pytest.fail("the slot is still at work")


def test_a_body_that_does_not_come_is_given_up(make_server: Callable[..., Served]) -> None:
    """After --timeout."""
    server = make_server(timeout_s=0.1)
    with socket.create_connection(("127.0.0.1", server.port), TIMEOUT_S) as client:
        client.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        reply = client.recv(4096)
    assert reply.startswith(b"HTTP/1.1 400")
    assert b"did not arrive in time" in reply


def test_a_client_that_does_not_read_is_given_up(make_server: Callable[..., Served]) -> None:
    """Its slot is free again, and other clients are answered meanwhile."""
    server = make_server(timeout_s=0.1, options=ModelOptions(n_ctx=1024, n_threads=1))
    body = json.dumps({"prompt": "a", "n_predict": 800, "ignore_eos": True, "stream": True, "n_probs": 200}).encode()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        end_s = time.monotonic() + TIMEOUT_S
        while not server.get("/slots").json[0].get("id_task", 0) and time.monotonic() < end_s:
            time.sleep(0.01)
        while any(slot["is_processing"] for slot in server.get("/slots").json):
            assert time.monotonic() < end_s, "it is waited for"
            time.sleep(0.01)
        received = b""
        with suppress(ConnectionError):
            while data := client.recv(1 << 20):
                received += data
    assert b'"stop":true' not in received
