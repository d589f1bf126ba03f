"""Who is served: the hosts and keys that a request may come with, and what browsers are told."""

from __future__ import annotations

import hmac

from aiohttp import web

from ggpy.server.errors import AuthenticationError, ForbiddenError
from ggpy.server.page import is_page
from ggpy.server.settings import ServerSettings
from ggpy.server.web.hosts import is_own_host
from ggpy.server.web.origins import origin_headers

PUBLIC = frozenset({"", "/", "/health", "/v1/health"})       # paths that need no key


def cors_headers(request: web.Request, settings: ServerSettings) -> dict[str, str]:
    """The headers that tell a browser whose pages may ask how, and read the answer."""
    headers = origin_headers(request, settings)
    if request.method == "OPTIONS":
        headers |= {"Access-Control-Allow-Credentials": "true" if settings.cors_credentials else "false",
                    "Access-Control-Allow-Methods": settings.cors_methods,
                    "Access-Control-Allow-Headers": settings.cors_headers}
    return headers


def check_host(request: web.Request, settings: ServerSettings) -> None:
    """Raise ForbiddenError for a name of another's in the Host header, where only this machine shall be served.

    A page of the web can let a name of its own mean 127.0.0.1; the browser then takes the server for a part of it.
    """
    host = request.headers.get("Host", "")
    if settings.is_local and host and not is_own_host(host, settings):
        raise ForbiddenError(f"the server is not called {host!r:.80}; --allowed-hosts names the names that it has "
                             "beside localhost")


def check_key(request: web.Request, settings: ServerSettings, path: str) -> None:
    """Raise AuthenticationError unless the request has one of the keys, or needs none."""
    if not settings.api_keys or path in PUBLIC or is_page(request, settings):
        return
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    given = [token if scheme.lower() == "bearer" else request.headers.get("Authorization", ""),
             request.headers.get("X-Api-Key", "")]
    matches = [hmac.compare_digest(data.encode("utf-8", "surrogateescape"), key.encode())
               for data in given for key in settings.api_keys]       # all, in constant time
    if not any(matches):
        raise AuthenticationError("Invalid API Key")
