"""Texts that cannot fit are refused before they are made tokens, which takes seconds for each megabyte."""

from __future__ import annotations

from typing import Any

import pytest

from ggpy.text import Tokenizer
from tests.server.conftest import Served

LONG = "ab c" * 20_000
MESSAGES = [{"role": "user", "content": LONG}]


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The long texts that are made tokens."""
    texts: list[str] = []
    encode = Tokenizer.encode

    def noted(self: Tokenizer, text: Any, **options: Any) -> list[int]:
        if len(text) >= len(LONG):
            texts.append(text)
        return encode(self, text, **options)

    monkeypatch.setattr(Tokenizer, "encode", noted)
    return texts


@pytest.mark.parametrize(("path", "body"), [
    ("/completion", {"prompt": LONG}), ("/completion", {"prompt": ["a", LONG]}), ("/v1/completions", {"prompt": LONG}),
    ("/v1/chat/completions", {"messages": MESSAGES}), ("/v1/responses", {"input": LONG}),
    ("/api/chat", {"model": "tiny", "messages": MESSAGES, "truncate": False})])
def test_a_text_that_cannot_fit_is_refused_unread(server: Served, encoded: list[str], path: str,
                                                  body: dict[str, Any]) -> None:
    """With the error of a context that is too small."""
    reply = server.post(path, body)
    assert (reply.status, encoded) == (400, [])
    assert b"exceeds the available context size (256 tokens)" in reply.data


@pytest.mark.parametrize(("path", "body", "status"), [
    ("/v1/messages/count_tokens", {"max_tokens": 9, "messages": MESSAGES}, 200),
    ("/v1/chat/completions/input_tokens", {"messages": MESSAGES}, 200),
    ("/v1/responses/input_tokens", {"input": LONG}, 200),
    ("/v1/completions", {"prompt": LONG, "max_tokens": 0, "echo": True}, 200),
    ("/api/chat", {"model": "tiny", "messages": MESSAGES, "stream": False, "options": {"num_predict": 1}}, 200)])
def test_a_text_that_need_not_fit_is_read(server: Served, encoded: list[str], path: str, body: dict[str, Any],
                                          status: int) -> None:
    """Where it is counted, repeated, or cut."""
    assert server.post(path, body).status == status
    assert len(encoded) == 1
