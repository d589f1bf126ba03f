"""Whose web pages may change which models there are."""

from __future__ import annotations

from urllib.parse import urlsplit

from aiohttp import web

from ggpy.server.errors import ForbiddenError
from ggpy.server.settings import ServerSettings, is_loopback

# of apps and of extensions of browsers
SCHEMES = frozenset({"app", "file", "tauri", "vscode-webview", "vscode-file", "chrome-extension", "moz-extension",
                     "safari-web-extension"})


def check_origin(request: web.Request, settings: ServerSettings) -> None:
    """Raise ForbiddenError for a page of another site, as Ollama does.

    Browsers send some requests of pages to other sites without asking first; what changes the store is not for them.
    """
    origin = request.headers.get("Origin")
    if origin is None or origin == settings.cors_origins:
        return
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        parts, host = None, ""
    if parts is not None and (parts.scheme in SCHEMES or parts.netloc == request.headers.get("Host")
                              or (parts.scheme in ("http", "https") and (is_loopback(host) or host == "0.0.0.0"))):
        return
    raise ForbiddenError(f"pages of {origin!r:.80} may not change the models of this server; --cors-origins names one "
                         "that may")
