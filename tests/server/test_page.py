"""What is at `/`: the page, the files of a folder in its place, or Ollama's greeting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.server.conftest import Served

BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
OLLAMA = "Ollama is running"


def test_the_page_is_served_with_its_files(server: Served) -> None:
    """To browsers and to those that take anything, with types that browsers insist on, and nothing from elsewhere."""
    for headers in (BROWSER, {"Accept": "*/*"}, {}):
        reply = server.get("/", **headers)
        assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert reply.data.startswith(b"<!doctype html>")
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    types = {"/page.js": "text/javascript", "/page.css": "text/css", "/icon.svg": "image/svg+xml",
             "/index.html": "text/html"}
    assert {path: server.get(path).headers["content-type"].partition(";")[0] for path in types} == types
    page = server.get("/").data.decode()
    assert "https://" not in page
    assert "innerHTML" not in server.get("/page.js").data.decode()
    assert (server.ask("HEAD", "/").status, server.ask("HEAD", "/").data) == (200, b"")


@pytest.mark.parametrize(("settings", "headers", "expected"), [
    ({}, {"User-Agent": "ollama/0.13.5 (amd64 linux)"}, OLLAMA), ({}, {"Accept": "application/json"}, OLLAMA),
    ({"is_ollama": True}, {}, OLLAMA), ({"is_ollama": True}, {"Accept": "*/*"}, OLLAMA),
    ({"is_ollama": True}, BROWSER, None), ({"is_ollama": True, "has_ui": False}, BROWSER, OLLAMA)])
def test_apps_that_look_for_ollama_find_it(make_server: Callable[..., Served], settings: dict[str, bool],
                                           headers: dict[str, str], expected: str | None) -> None:
    """They compare the whole body; browsers get the page all the same, if there is one."""
    reply = make_server(**settings).get("/", **headers)
    assert reply.status == 200
    assert (reply.data.decode() == OLLAMA) == (expected is not None)


def test_without_a_page_there_is_nothing(make_server: Callable[..., Served]) -> None:
    """With --no-ui."""
    server = make_server(has_ui=False)
    for path in ("/", "/index.html", "/page.js"):
        assert server.get(path, **BROWSER).status == 404


def test_the_page_needs_no_key_but_paths_that_do_not_exist_do(make_server: Callable[..., Served]) -> None:
    """What is missing and what is secret look the same."""
    server = make_server(api_keys=frozenset({"secret"}))
    assert {path: server.get(path).status for path in ("/", "/page.js", "/nothing.js", "/props", "/v1/models")} == {
        "/": 200, "/page.js": 200, "/nothing.js": 401, "/props": 401, "/v1/models": 401}


def test_the_page_is_behind_the_prefix(make_server: Callable[..., Served]) -> None:
    """Its own links are relative, so its address ends with a slash."""
    server = make_server(api_prefix="/llm")
    assert (server.get("/llm").status, server.get("/llm").headers["location"]) == (308, "/llm/")
    assert [server.get(path).status for path in ("/llm/", "/llm/page.js", "/llm/health", "/", "/page.js")] == [
        200, 200, 200, 404, 404]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to be served, beside a secret."""
    root = tmp_path_factory.mktemp("pages")
    for name, text in {"site/index.html": "home", "site/a/b.txt": "text", "site/a/index.html": "inner",
                       "site/.hidden": "secret", "site/props": "mine", "secret.txt": "secret"}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "site" / "link.txt").symlink_to(root / "secret.txt")
    (root / "site" / "up").symlink_to(root)
    return root / "site"


def test_a_folder_is_served_in_place_of_the_page(make_server: Callable[..., Served], folder: Path) -> None:
    """With --path; the API's own routes come first."""
    server = make_server(static_path=folder)
    assert [server.get(path).data for path in ("/", "/a/b.txt", "/a/", "/a")] == [b"home", b"text", b"inner", b"inner"]
    assert "total_slots" in server.get("/props").json
    assert server.get("/page.js").status == 404


@pytest.mark.parametrize("path", [
    "/../secret.txt", "/a/../../secret.txt", "/%2e%2e/secret.txt", "/..%2fsecret.txt", "/a/%2e%2e%2f..%2fsecret.txt",
    "//etc/passwd", "/%2fetc%2fpasswd", "/.hidden", "/link.txt", "/up/secret.txt", "/up", "/a/b.txt/c", "/a%00b",
    "/..%5csecret.txt", "/C:/secret.txt", "/" + "x" * 5000])
def test_nothing_outside_of_the_folder_is_served(make_server: Callable[..., Served], folder: Path, path: str) -> None:
    """Neither by dots nor by links; hidden files are not served at all."""
    assert make_server(static_path=folder).get(path).status == 404
