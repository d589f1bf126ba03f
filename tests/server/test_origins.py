"""What web pages of other sites may do, whatever dialect they speak."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ggpy.server.settings import ServerSettings
from ggpy.server.web.origins import is_allowed, rules_of
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


@pytest.mark.parametrize(("origin", "is_listed"), [
    ("https://b.a.example:8443", True), ("https://b.a.example", False), ("http://b.a.example:8443", False),
    ("https://a.example:8443", False), ("http://[::1]:9", True), ("http://[::2]:9", False)])
def test_each_star_of_an_origin_stands_for_any_text(origin: str, is_listed: bool) -> None:
    """Brackets and question marks are those of addresses; only a rule with one star matched once."""
    rules = rules_of("https://*.a.example:*,http://[::1]:*")
    assert is_allowed(origin, rules) is is_listed


@pytest.mark.parametrize(("host", "status"), [
    ("evil.example:8080", 403), ("localhost:8080", 501), ("192.168.0.7:8080", 501), ("[2001:db8::1]:8080", 501),
    ("box.lan:8080", 501)])
def test_a_page_is_the_servers_own_where_the_name_is(make_server: Callable[..., Served], host: str,
                                                     status: int) -> None:
    """A page of the web can let its own name mean a server that others reach; the origin is the Host then."""
    server = make_server(hosts=("0.0.0.0",), allowed_hosts=frozenset({"box.lan"}))
    reply = server.ask("POST", "/slots/0?action=save", {}, {"Host": host, "Origin": f"http://{host}"})
    assert reply.status == status
    assert ("--allowed-hosts" in reply.data.decode()) is (status == 403)


def test_a_star_lets_no_page_change_models_and_says_so(make_server: Callable[..., Served]) -> None:
    """The origin would have to be listed itself."""
    reply = make_server(cors_origins="*,localhost", is_ollama=True).ask(
        "POST", "/slots/0?action=save", {}, {"Origin": FOREIGN})
    assert reply.status == 403
    assert "`*` lets pages ask, but not change models; --cors-origins, or OLLAMA_ORIGINS, may" in reply.error["message"]


@pytest.mark.parametrize(("path", "body"), [
    ("/api/chat", {"messages": []}), ("/api/generate", {"prompt": ""})])
def test_a_page_of_another_site_loads_and_unloads_nothing(make_server: Callable[..., Served], path: str,
                                                          body: dict[str, object]) -> None:
    """A request without a prompt is for that alone; pages that are listed may send it."""
    server = make_server(cors_origins=f"*,{EXTENSION}", sleep_idle_s=600)
    entry = server.server.models.single
    for keep_alive in (0, -1, "5m"):
        assert server.ask("POST", path, {"model": "tiny", **body, "keep_alive": keep_alive},
                          {"Origin": FOREIGN}).status == 403
        assert (entry.state, entry.keep_s) == ("loaded", 600)
    assert server.ask("POST", path, {"model": "tiny", **body, "keep_alive": 900}, {"Origin": EXTENSION}).status == 200
    assert entry.keep_s == 900
    entry.keep_s = 600


@pytest.mark.parametrize(("path", "body"), [
    ("/api/chat", {"messages": [{"role": "user", "content": "a"}]}), ("/api/generate", {"prompt": "a"}),
    ("/api/embed", {"input": "a"}), ("/api/embeddings", {"prompt": "a"})])
def test_a_page_of_another_site_has_no_say_in_how_long_a_model_stays(make_server: Callable[..., Served], path: str,
                                                                     body: dict[str, object]) -> None:
    """It is answered, as `*` says, and what it says of that is left out."""
    server = make_server(cors_origins=f"*,{EXTENSION}", sleep_idle_s=600)
    entry, usual = server.server.models.single, {"model": "tiny", "options": {"num_predict": 1}, **body}
    for keep_alive in (0, -1):
        assert server.ask("POST", path, {**usual, "keep_alive": keep_alive}, {"Origin": FOREIGN}).status == 200
        assert (entry.state, entry.keep_s) == ("loaded", 600)
    assert server.ask("POST", path, {**usual, "keep_alive": 900}, {"Origin": EXTENSION}).status == 200
    assert entry.keep_s == 900
    entry.keep_s = 600


def test_a_listed_origin_may_change_the_server(make_server: Callable[..., Served]) -> None:
    """Also beside *, which lets all others ask."""
    server = make_server(cors_origins=f"*,{FOREIGN}")
    assert server.ask("POST", "/slots/0?action=save", {}, {"Origin": FOREIGN}).status == 501
    assert server.ask("POST", "/slots/0?action=save", {}, {"Origin": EXTENSION}).status == 403
    assert server.get("/v1/models", Origin=EXTENSION).status == 200
