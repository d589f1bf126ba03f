"""Ollama's variables, with --ollama."""

from __future__ import annotations

from typing import Any

import pytest

from ggpy.errors import ConfigError
from ggpy.server.options.flag_values import server_settings
from ggpy.server.options.flags import add_arguments
from ggpy.server.settings import ServerSettings
from ggpy.server.web.origins import is_allowed, rules_of
from ggpy.tools.parser import Parser


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of this machine do not count."""
    for name in ("HOST", "ORIGINS", "KEEP_ALIVE", "CONTEXT_LENGTH"):
        monkeypatch.delenv(f"OLLAMA_{name}", raising=False)


def settings(*argv: str) -> ServerSettings:
    """What a command line means."""
    parser = Parser(prog="ggpy serve")
    add_arguments(parser)
    return server_settings(parser.parse(argv))


@pytest.mark.parametrize(("text", "host", "port"), [
    ("0.0.0.0", "0.0.0.0", 11434), ("0.0.0.0:8000", "0.0.0.0", 8000), (":8000", "127.0.0.1", 8000),
    ("http://a.example", "a.example", 80), ("https://a.example/path", "a.example", 443), ("::1", "::1", 11434),
    ("[::1]:7", "::1", 7), ("[::1]", "::1", 11434), ("localhost:0", "localhost", 0), ("", "127.0.0.1", 11434)])
def test_the_address_is_written_as_for_ollama(
    monkeypatch: pytest.MonkeyPatch, text: str, host: str, port: int
) -> None:
    """With or without scheme, host and port."""
    monkeypatch.setenv("OLLAMA_HOST", text)
    found = settings("--ollama")
    assert (found.hosts, found.port) == ((host,), port)


def test_flags_count_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the variables of llama-server, which are flags."""
    for name, text in {"HOST": "0.0.0.0:1", "ORIGINS": "https://a.example", "KEEP_ALIVE": "7",
                       "CONTEXT_LENGTH": "64"}.items():
        monkeypatch.setenv(f"OLLAMA_{name}", text)
    monkeypatch.setenv("LLAMA_ARG_HOST", "::1")
    found = settings("--ollama", "--port", "2", "--cors-origins", "*", "--sleep-idle-seconds", "9", "-c", "32")
    assert (found.hosts, found.port, found.cors_origins, found.sleep_idle_s, found.options.n_ctx) == (
        ("::1",), 2, "*", 9, 32)


def test_without_the_flag_they_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of Ollama have OLLAMA_HOST, too."""
    for name, text in {"HOST": "a.example:x", "ORIGINS": "*", "KEEP_ALIVE": "x", "CONTEXT_LENGTH": "x"}.items():
        monkeypatch.setenv(f"OLLAMA_{name}", text)
    found, usual = settings(), ServerSettings()
    assert (found.hosts, found.port, found.sleep_idle_s, found.options.n_ctx) == (
        usual.hosts, usual.port, usual.sleep_idle_s, None)


@pytest.mark.parametrize(("text", "seconds"), [
    ("10m", 600), ("300", 300), ("0", 0), ("-1", None), ("-5m", None), (None, 300)])
def test_how_long_models_stay(monkeypatch: pytest.MonkeyPatch, text: str | None, seconds: float | None) -> None:
    """A duration, or seconds; a negative one is for ever."""
    if text is not None:
        monkeypatch.setenv("OLLAMA_KEEP_ALIVE", text)
    assert settings("--ollama").sleep_idle_s == seconds


def test_the_context_is_that_of_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """0 leaves it to the model."""
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", "4096")
    assert settings("--ollama").options.n_ctx == 4096
    assert settings("--ollama", "--pool-tokens", "100").options.pool_tokens == 4096
    monkeypatch.setenv("OLLAMA_CONTEXT_LENGTH", "0")
    assert settings("--ollama").options.n_ctx is None


@pytest.mark.parametrize(("name", "text"), [
    ("HOST", "a:b"), ("HOST", "a:65536"), ("KEEP_ALIVE", "soon"), ("CONTEXT_LENGTH", "1"), ("CONTEXT_LENGTH", "-4")])
def test_a_value_that_cannot_work_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str, text: str) -> None:
    """It names the variable."""
    monkeypatch.setenv(f"OLLAMA_{name}", text)
    with pytest.raises(ConfigError, match=f"OLLAMA_{name}={text}: expected"):
        settings("--ollama")


@pytest.mark.parametrize(("origin", "is_listed"), [
    ("moz-extension://abc", True), ("https://x.a.example", True), ("https://a.example", False),
    ("https://x.a.example.evil.com", False), ("http://localhost:3", True), ("https://b.example", False),
    ("http://b.example:8080", True)])
def test_origins_are_those_of_this_machine_and_those_that_are_listed(
    monkeypatch: pytest.MonkeyPatch, origin: str, is_listed: bool
) -> None:
    """A star stands for any text, wherever it is."""
    monkeypatch.setenv("OLLAMA_ORIGINS", "moz-extension://*, https://*.a.example, http://b.example:*")
    rules: Any = rules_of(settings("--ollama").cors_origins)
    assert is_allowed(origin, rules) is is_listed
