"""How a dialect says which paths it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from ggpy.server.errors import Body, llama_body

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A path, who serves it, and how its errors look."""

    method: str
    path: str                       # as aiohttp writes patterns
    handler: Handler                # raises errors of errors.py, of the server's or of ggpy's
    error_body: Body = llama_body
    changes_models: bool = False    # which models there are, or which are loaded: not for pages of other sites
