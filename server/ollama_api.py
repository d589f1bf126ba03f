"""Ollama's dialect: all of its routes."""

from __future__ import annotations

from collections.abc import Sequence

from ggpy.server import ollama_chat, ollama_embed, ollama_generate, ollama_info, ollama_pull, ollama_store
from ggpy.server.context import Server
from ggpy.server.routes import Route


def routes(server: Server) -> Sequence[Route]:
    """Whatever is below /api; `/` is the page's."""
    parts = (ollama_info, ollama_chat, ollama_generate, ollama_embed, ollama_pull, ollama_store)
    return [route for part in parts for route in part.routes(server)]
