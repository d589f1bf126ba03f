"""OpenAI's dialect: all of its routes."""

from __future__ import annotations

from collections.abc import Sequence

from ggpy.server.context import Server
from ggpy.server.openai import chat, completions, embeddings, responses
from ggpy.server.web.routes import Route


def routes(server: Server) -> Sequence[Route]:
    """In the order in which they are looked for."""
    parts = (completions, chat, responses, embeddings)
    return [route for part in parts for route in part.routes(server)]
