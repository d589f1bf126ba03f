"""The OpenAPI document, and whether the server bears what it allows."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import Phase as HypothesisPhase

from ggpy.server.app import make_app
from ggpy.server.context import Server
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.model_pool.models import Entry
from ggpy.server.openapi import openapi
from ggpy.server.openapi_bodies import BODIES
from ggpy.server.settings import ServerSettings
from tests.server.conftest import TIMEOUT_S, Served

# what changes models or files, or does not end
DANGEROUS = re.compile(r"/api/(pull|push|create|copy|delete|blobs)|/models/|/v1/stream|/slots/")
WITHOUT_BODY = re.compile(r"/responses/{id}|/api/blobs/")


@pytest.fixture(scope="module")
def fuzzed(make_server: Callable[..., Served]) -> Served:
    """One that has all that can be asked for."""
    return make_server(has_embeddings=True, has_props=True)


@pytest.fixture
def document(fuzzed: Served) -> dict[str, Any]:
    found: dict[str, Any] = fuzzed.get("/openapi.json").json
    return found


def test_the_document_has_every_route(fuzzed: Served, document: dict[str, Any]) -> None:
    """With the fields of each body."""
    paths = document["paths"]
    assert {"/completion", "/v1/chat/completions", "/v1/messages", "/api/chat", "/v1/responses", "/"} <= set(paths)
    assert not [path for path in paths if "{path}" in path]
    posts = {path: methods["post"] for path, methods in paths.items() if "post" in methods}
    assert not [path for path, post in posts.items() if "requestBody" not in post and not WITHOUT_BODY.search(path)]
    fields = posts["/v1/chat/completions"]["requestBody"]["content"]["application/json"]["schema"]
    assert fields["required"] == ["messages"]
    assert fields["properties"]["temperature"] == {"type": ["number", "null"]}
    operations = [method["operationId"] for methods in paths.values() for method in methods.values()]
    assert len(operations) == len(set(operations))


@pytest.mark.parametrize(("path", "dialect"), [
    ("/v1/health", "llama-server"), ("/v1/rerank", "llama-server"), ("/completion", "llama-server"),
    ("/embeddings", "llama-server"), ("/v1/embeddings", "OpenAI"), ("/v1/chat/completions", "OpenAI"),
    ("/chat/completions", "OpenAI"), ("/v1/responses", "OpenAI"),
    ("/v1/messages", "Anthropic"), ("/api/chat", "Ollama"),
])
def test_a_route_has_the_tag_of_its_dialect(document: dict[str, Any], path: str, dialect: str) -> None:
    """Not whose its path looks like: much of llama-server's is below /v1, too."""
    assert [method["tags"] for method in document["paths"][path].values()] == [[dialect]]


def test_every_body_of_the_tables_is_that_of_a_route(document: dict[str, Any]) -> None:
    """Routes of servers with several models aside."""
    paths = {path.removeprefix("/v1") for path in document["paths"]} | set(document["paths"])
    assert [path for path in BODIES if path not in paths] == ["/models/load", "/models/unload"]


def test_the_document_is_behind_the_prefix(make_server: Callable[..., Served]) -> None:
    """Its paths, too."""
    paths = make_server(api_prefix="/llm").get("/llm/openapi.json").json["paths"]
    assert "/llm/completion" in paths
    assert all(path.startswith("/llm/") for path in paths)


def allowed() -> Any:
    """The document without what is dangerous."""
    wanted = ServerSettings()
    models = ModelManager(wanted, [Entry("tiny", "tiny")], is_single=True)
    config = schemathesis.Config.from_dict({"generation": {"mode": "all"}})
    schema = schemathesis.openapi.from_dict(openapi(make_app(Server(wanted, models))), config=config)
    return schema.exclude(path_regex=DANGEROUS.pattern)


schema = allowed()


@schema.parametrize()     # type: ignore[untyped-decorator]
@settings(max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck),
          phases=[HypothesisPhase.explicit, HypothesisPhase.generate])
def test_nothing_that_the_document_allows_or_forbids_breaks_the_server(case: Any, fuzzed: Served) -> None:
    """Whatever is sent, the answer is no failure of the server, and an error says what is wrong."""
    with requests.Session() as session:
        reply = case.call(base_url=f"http://127.0.0.1:{fuzzed.port}", session=session, timeout=TIMEOUT_S)
    assert reply.status_code < 500 or reply.status_code == 501, reply.text
    if reply.status_code >= 400 and case.method.upper() != "HEAD":
        assert "error" in reply.json()
