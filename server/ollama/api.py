"""Ollama's dialect: all of its routes."""

from __future__ import annotations

from collections.abc import Sequence

from ggpy.server.context import Server
from ggpy.server.ollama import chat, embed, generate, info, pull, store
from ggpy.server.web.routes import Route


def routes(server: Server) -> Sequence[Route]:
    """Whatever is below /api; `/` is the page's."""
    parts = (info, chat, generate, embed, pull, store)
    return [route for part in parts for route in part.routes(server)]
