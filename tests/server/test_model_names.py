"""What models may be called on a server of several, whichever dialect asks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ggpy.loading import ModelOptions
from ggpy.server.model_pool.model_lookup import meant_entry, named_entry
from ggpy.server.model_pool.models import Entry
from ggpy.server.settings import ServerSettings
from tests.server.conftest import CHATML, Served

MESSAGES = [{"role": "user", "content": "a"}]


@pytest.fixture(scope="module")
def router(tiny_model: Path) -> Iterator[Served]:
    """A server of several models, of which there is one, "tiny"."""
    options = ModelOptions(n_ctx=256, n_threads=1)
    served = Served(ServerSettings(options=options, chat_template=CHATML, is_offline=True), tiny_model, is_single=False)
    yield served
    served.close()


@pytest.mark.parametrize("name", ["tiny", "Tiny", "tiny:latest"])
@pytest.mark.parametrize(("path", "body"), [
    ("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 1}),
    ("/v1/messages", {"messages": MESSAGES, "max_tokens": 1}),
    ("/api/chat", {"messages": MESSAGES, "stream": False, "options": {"num_predict": 1}}),
    ("/tokenize", {"content": "a"}),
])
def test_a_name_means_the_same_model_everywhere(router: Served, path: str, body: dict[str, Any], name: str) -> None:
    """Also in capitals and with the usual tag, which the other dialects took for unknown names."""
    assert router.post(path, {"model": name, **body}).status == 200


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", "/v1/models/zzz", 404), ("POST", "/v1/messages", 404), ("POST", "/api/chat", 404),
    ("POST", "/v1/chat/completions", 400), ("POST", "/completion", 400), ("GET", "/props?model=zzz", 400),
    ("GET", "/slots?model=zzz", 400), ("POST", "/models/unload", 400), ("POST", "/models/load", 404),
])
def test_an_unknown_name_has_the_status_that_clients_expect(router: Served, method: str, path: str,
                                                            status: int) -> None:
    """404 but for requests to generate, which llama-server answers by 400."""
    reply = router.ask(method, path, {"model": "zzz", "messages": MESSAGES, "prompt": "a", "max_tokens": 1})
    assert reply.status == status
    assert "not found" in reply.data.decode()


def test_a_model_is_looked_up_by_each_of_its_names(router: Served) -> None:
    """/v1/models/ takes what requests take."""
    for name in ("tiny", "TINY", "tiny:latest"):
        assert router.get(f"/v1/models/{name}").json["id"] == "tiny"


def test_what_is_written_exactly_comes_first() -> None:
    """Of two names that differ in their letters' case alone."""
    entries = [Entry("A", "1.gguf"), Entry("a", "2.gguf", ("u/r:Q8_0",))]
    assert [getattr(meant_entry(entries, name), "source", None) for name in ("A", "a", "b")] == [
        "1.gguf", "2.gguf", None]
    assert named_entry(entries, "U/R:q8_0") is None
    assert meant_entry(entries, "U/R:q8_0") is entries[1]
