"""How long the server waits for a client: --timeout."""

from __future__ import annotations

import asyncio
import math

from aiohttp import web

from ggpy.server.settings import TIMEOUT_S

PATIENCE_S = web.AppKey("patience_s", float)
UNREAD_S = 60.0         # of a stream that nobody reads, while its model must stay and its slot is taken


def patience(request: web.Request, most_s: float = math.inf) -> asyncio.Timeout:
    """Ends what is inside by TimeoutError after so long, or `most_s`."""
    return asyncio.timeout(min(most_s, request.app.get(PATIENCE_S, float(TIMEOUT_S))))
