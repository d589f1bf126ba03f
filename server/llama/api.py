"""llama-server's own dialect: all of its routes."""

from __future__ import annotations

from collections.abc import Sequence

from ggpy.server.context import Server
from ggpy.server.llama import completion, downloads, embeddings, info, lora, router, slots, streams, text
from ggpy.server.web.routes import Route


def routes(server: Server) -> Sequence[Route]:
    """In the order in which they are looked for."""
    parts = (info, text, completion, embeddings, lora, slots, router, streams, downloads)
    return [route for part in parts for route in part.routes(server)]
