"""How long the server waits for a client: --timeout."""

from __future__ import annotations

import asyncio

from aiohttp import web

from ggpy.server.settings import TIMEOUT_S

PATIENCE_S = web.AppKey("patience_s", float)


def patience(request: web.Request) -> asyncio.Timeout:
    """Ends what is inside by TimeoutError after so long."""
    return asyncio.timeout(request.app.get(PATIENCE_S, float(TIMEOUT_S)))
