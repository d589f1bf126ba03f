"""Web pages of other sites change no models, whatever dialect they speak."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ggpy.server.settings import ServerSettings
from tests.server.conftest import Served

CHANGING = [("POST", "/models"), ("DELETE", "/models?model=tiny"), ("POST", "/models/load"), ("POST", "/models/unload"),
            ("POST", "/api/pull"), ("POST", "/api/create"), ("POST", "/api/copy"), ("DELETE", "/api/delete"),
            ("POST", "/api/blobs/sha256:00")]


@pytest.fixture(scope="module")
def router(tiny_model: Path) -> Iterator[Served]:
    """A server of several models, none of which is loaded."""
    served = Served(ServerSettings(is_offline=True), tiny_model, is_single=False)
    yield served
    served.close()


@pytest.mark.parametrize(("method", "path"), CHANGING)
def test_a_page_of_another_site_changes_no_models(router: Served, method: str, path: str) -> None:
    """Browsers send what is called text without asking first, so the server has to look."""
    body, headers = {"model": "nothing", "stream": False}, {"Origin": "https://a.example", "Content-Type": "text/plain"}
    assert router.ask(method, path, body, headers).status == 403
    assert router.ask(method, path, body, {"Origin": "http://localhost:3000"}).status in (400, 404)


def test_a_page_of_another_site_may_ask_a_model(router: Served) -> None:
    """That its answers can be read is for --cors-origins to say."""
    assert router.ask("POST", "/tokenize", {"model": "nothing"}, {"Origin": "https://a.example"}).status == 400
