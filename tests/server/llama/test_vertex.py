"""Vertex AI's prediction protocol, as llama-server speaks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ggpy import config
from ggpy.errors import ConfigError
from ggpy.server.llama.vertex import format_of
from tests.server.conftest import Served

MESSAGES = [{"role": "user", "content": "ab"}]


def test_each_instance_is_a_request_of_its_own(make_server: Callable[..., Served]) -> None:
    """To the route that it names; what is wrong with one is told in its place."""
    server = make_server(predict_path="/predict", health_path="/alive")
    reply = server.post("/predict", {"instances": [
        {"@requestFormat": "chatCompletions", "messages": MESSAGES, "max_tokens": 2, "stream": True},
        {"@requestFormat": "/tokenize", "content": "ab"}, {"@requestFormat": "tokenize", "content": 7},
        {"@requestFormat": "nothing"}, "text"]})
    assert reply.status == 200
    chat, tokens, *errors = reply.json["predictions"]
    assert chat["choices"][0]["message"]["role"] == "assistant"
    assert len(tokens["tokens"]) == 2
    assert [error["error"]["code"] for error in errors] == [400, 400, 400]
    assert server.get("/alive").json == {"status": "ok"}
    assert server.post("/predict", {"instances": "x"}).status == 400
    assert server.post("/predict", {}).status == 400


def test_predictions_change_nothing(make_server: Callable[..., Served]) -> None:
    """Neither models nor adapters nor files, since anybody's page may ask for one."""
    server = make_server(predict_path="/predict", health_path="/alive")
    reply = server.post("/predict", {"instances": [
        {"@requestFormat": name} for name in ("loraAdapters", "/api/delete", "apiCreate", "/slots/{id}")]})
    assert all("no handler registered" in found["error"]["message"] for found in reply.json["predictions"])


def test_elsewhere_there_are_no_predictions(server: Served) -> None:
    """The path is not known."""
    assert server.post("/predict", {"instances": []}).status == 404


@pytest.mark.parametrize(("path", "name"), [
    ("/v1/chat/completions", "chatCompletions"), ("/apply-template", "applyTemplate"), ("/tokenize", "tokenize")])
def test_routes_have_names_without_slashes(path: str, name: str) -> None:
    """In camel case."""
    assert format_of(path) == name


def test_the_container_is_configured_by_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """They count only where AIP_MODE says so."""
    monkeypatch.setenv("AIP_HTTP_PORT", "9000")
    assert config.vertex() is None
    monkeypatch.setenv("AIP_MODE", "PREDICTION")
    assert config.vertex() == config.Vertex("/predict", None, 9000)
    monkeypatch.setenv("AIP_PREDICT_ROUTE", "p/q")
    monkeypatch.setenv("AIP_HEALTH_ROUTE", "/h")
    assert config.vertex() == config.Vertex("/p/q", "/h", 9000)
    monkeypatch.setenv("AIP_HTTP_PORT", "none")
    with pytest.raises(ConfigError, match="AIP_HTTP_PORT=none"):
        config.vertex()
