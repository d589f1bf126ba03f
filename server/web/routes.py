"""How a dialect says which paths it serves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

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
    # for good, by itself: models, adapters or files. Not for pages of other sites; answers they may ask for, which load
    # a model where they need it
    changes_server: bool = False
    dialect: str = "llama-server"   # whose it is, for readers of the server's description


ROUTES = web.AppKey("routes", dict[Any, Route])     # of an application, by the handler that aiohttp knows
