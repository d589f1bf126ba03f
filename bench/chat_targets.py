"""Chats as a benchmark sends them: as tokens to an engine and to completions, as messages to the chat APIs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ggpy.text import ModelText
from ggpy.tools.bench_serve_targets import COMMON_WORDS, Answer, LlamaServer, OpenAIServer, Server

MODEL = "chat"          # what the server calls its model


class Chats:
    """Prompts that are the tokens of one message, and the messages that they are the tokens of."""

    def __init__(self, model: Path) -> None:
        self._text = ModelText.from_file(model)
        self._words = COMMON_WORDS.split()
        self._messages: dict[tuple[int, ...], list[dict[str, str]]] = {}

    def prompt(self, n_words: int, *seed: int) -> list[int]:
        """Asks for a story with `n_words` words that `seed` chooses: one that is long."""
        words = np.random.default_rng(seed).choice(self._words, n_words)
        messages = [{"role": "user", "content": f"Write a very long story with these words: {' '.join(words)}"}]
        tokens = self._text.chat_tokens(messages)
        self._messages[tuple(tokens)] = messages
        return tokens

    def messages(self, prompt: Sequence[int]) -> list[dict[str, str]]:
        """What `prompt` was made of."""
        return self._messages[tuple(prompt)]


class ChatServer(Server):
    """A server that is sent the messages of `chats`."""

    lacks: tuple[str, ...] = ("token ids", "preemptions")

    def __init__(self, url: str, name: str, chats: Chats) -> None:
        super().__init__(url, name)
        self._chats = chats


class OpenAIChat(ChatServer):
    """POST /v1/chat/completions."""

    def _request(self, prompt: Sequence[int], n_output: int) -> tuple[str, dict[str, Any]]:
        return "/v1/chat/completions", {
            "model": MODEL, "messages": self._chats.messages(prompt), "max_tokens": n_output, "temperature": 0.0,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}

    def _read(self, event: dict[str, Any], answer: Answer, time_s: float) -> None:
        if "error" in event:
            answer.problem, answer.message = "failed", str(event["error"])[:200]
        if any(choice["delta"].get("content") for choice in event.get("choices", ())):
            answer.times_s.append(time_s)
        if usage := event.get("usage"):
            answer.n_tokens = usage["completion_tokens"]


class AnthropicChat(ChatServer):
    """POST /v1/messages, with llama-server's `ignore_eos` beside Anthropic's fields."""

    def _request(self, prompt: Sequence[int], n_output: int) -> tuple[str, dict[str, Any]]:
        return "/v1/messages", {"model": MODEL, "messages": self._chats.messages(prompt), "max_tokens": n_output,
                                "temperature": 0.0, "ignore_eos": True, "stream": True}

    def _read(self, event: dict[str, Any], answer: Answer, time_s: float) -> None:
        kind = event["type"]
        if kind == "error":
            answer.problem, answer.message = "failed", str(event["error"])[:200]
        elif kind == "content_block_delta":
            answer.times_s.append(time_s)
        elif kind == "message_delta":
            answer.n_tokens = event["usage"]["output_tokens"]


class OllamaChat(ChatServer):
    """POST /api/chat. Ollama's API has nothing to go on with behind the token that ends an answer."""

    def _request(self, prompt: Sequence[int], n_output: int) -> tuple[str, dict[str, Any]]:
        return "/api/chat", {"model": MODEL, "messages": self._chats.messages(prompt), "stream": True,
                             "options": {"num_predict": n_output, "temperature": 0.0, "repeat_penalty": 1.0}}

    def _event(self, line: bytes) -> dict[str, Any] | None:
        found: dict[str, Any] = json.loads(line)
        return found

    def _read(self, event: dict[str, Any], answer: Answer, time_s: float) -> None:
        if "error" in event:
            answer.problem, answer.message = "failed", str(event["error"])[:200]
        elif event["message"]["content"]:
            answer.times_s.append(time_s)
        if event.get("done"):
            answer.n_tokens = event["eval_count"]


CHAT_SERVERS: dict[str, type[ChatServer]] = {
    "/v1/chat/completions": OpenAIChat, "/v1/messages": AnthropicChat, "/api/chat": OllamaChat}


def server(route: str, url: str, chats: Chats) -> Server:
    """What sends the prompts of `chats` to `route` of the server at `url`."""
    if route in CHAT_SERVERS:
        return CHAT_SERVERS[route](url, route, chats)
    return LlamaServer(url, route) if route == "/completion" else OpenAIServer(url, route, model=MODEL)
