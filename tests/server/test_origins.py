"""What web pages of other sites may do, whatever dialect they speak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ggpy.server.settings import ServerSettings
from tests.server.conftest import Served

CHANGING = [("POST", "/models"), ("DELETE", "/models?model=tiny"), ("POST", "/models/load"), ("POST", "/models/unload"),
            ("POST", "/api/pull"), ("POST", "/api/create"), ("POST", "/api/copy"), ("DELETE", "/api/delete"),
            ("POST", "/api/blobs/sha256:00"), ("POST", "/slots/9?action=save"), ("POST", "/lora-adapters")]
FOREIGN = "https://a.example"
EXTENSION = "chrome-extension://abcdef"


@pytest.fixture(scope="module")
def router(tiny_model: Path) -> Iterator[Served]:
    """A server of several models, none of which is loaded."""
    served = Served(ServerSettings(is_offline=True), tiny_model, is_single=False)
    yield served
    served.close()


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_a_page_of_another_site_changes_nothing(router: Served, method: str, path: str) -> None:
    """Browsers send what is called text without asking first, so the server has to look."""
    body, headers = {"model": "nothing", "stream": False}, {"Content-Type": "text/plain"}
    for origin in (FOREIGN, EXTENSION, "null"):
        assert router.ask(method, path, body, {**headers, "Origin": origin}).status == 403
    for origin in ("http://localhost:3000", "http://a.localhost", "http://0.0.0.0:1", "app://x"):
        assert router.ask(method, path, body, {"Origin": origin}).status in (400, 404, 501)


def test_a_page_of_another_site_may_ask_a_model(router: Served) -> None:
    """That its answers can be read is for --cors-origins to say."""
    assert router.ask("POST", "/tokenize", {"model": "nothing"}, {"Origin": FOREIGN}).status == 400


@pytest.mark.parametrize(("method", "path"), [
    ("POST", "/api/generate"), ("POST", "/v1/chat/completions"), ("GET", "/api/tags"), ("GET", "/props")])
def test_with_a_rule_pages_of_other_sites_are_not_served(make_server: Callable[..., Served], method: str,
                                                         path: str) -> None:
    """With --ollama there is one: a page must not have this machine work for it, even if it cannot read the answer."""
    server = make_server(cors_origins="localhost")
    reply = server.ask(method, path, {}, {"Origin": FOREIGN})
    assert reply.status == 403
    assert "--cors-origins" in reply.data.decode()
    for origin in (f"http://127.0.0.1:{server.port}", "http://localhost:3000", "tauri://localhost"):
        assert server.ask(method, path, {}, {"Origin": origin}).status != 403
    assert server.ask(method, path, {}).status != 403


@pytest.mark.parametrize(("origin", "is_listed"), [
    (FOREIGN, True), ("https://b.example:8443", True), (EXTENSION, True), ("https://c.example", False),
    ("https://a.example.evil.com", False), ("moz-extension://abcdef", False)])
def test_several_origins_may_be_listed(make_server: Callable[..., Served], origin: str, is_listed: bool) -> None:
    """The one that asks is told, as browsers take no list; a * at the end is for whatever follows."""
    server = make_server(cors_origins="https://a.example, https://b.example:8443,chrome-extension://*")
    reply = server.get("/v1/models", Origin=origin)
    assert reply.status == (200 if is_listed else 403)
    assert reply.headers.get("access-control-allow-origin") == (origin if is_listed else None)
    assert reply.headers["vary"] == "Origin"


def test_a_listed_origin_may_change_the_server(make_server: Callable[..., Served]) -> None:
    """Also beside *, which lets all others ask."""
    server = make_server(cors_origins=f"*,{FOREIGN}")
    assert server.ask("POST", "/slots/0?action=save", {}, {"Origin": FOREIGN}).status == 501
    assert server.ask("POST", "/slots/0?action=save", {}, {"Origin": EXTENSION}).status == 403
    assert server.get("/v1/models", Origin=EXTENSION).status == 200
