"""Who is served: the origins, hosts and keys that a request may come with."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from urllib.parse import urlsplit

from aiohttp import web

from ggpy.server.errors import AuthenticationError, ForbiddenError
from ggpy.server.page import is_page
from ggpy.server.settings import ServerSettings, is_loopback

PUBLIC = frozenset({"", "/", "/health", "/v1/health"})       # paths that need no key


def cors_headers(request: web.Request, settings: ServerSettings) -> dict[str, str]:
    """The headers that tell a browser whose pages may read the answer."""
    origin = request.headers.get("Origin", "")
    headers = {}
    allowed = allowed_origin(origin, settings.cors_origins, is_echoed=settings.cors_credentials)
    if allowed is not None:
        headers["Access-Control-Allow-Origin"] = allowed
    if request.method == "OPTIONS":
        headers |= {"Access-Control-Allow-Credentials": "true" if settings.cors_credentials else "false",
                    "Access-Control-Allow-Methods": settings.cors_methods,
                    "Access-Control-Allow-Headers": settings.cors_headers}
    return headers


def allowed_origin(origin: str, rule: str, *, is_echoed: bool) -> str | None:
    """What the header about `origin` says by `rule`; None: there is none.

    A browser does not take "*" with credentials, so the origin is echoed then.
    """
    if rule == "*":
        return origin if is_echoed else "*"
    if rule == "localhost":
        try:
            host = urlsplit(origin).hostname or ""
        except ValueError:
            return None
        return origin if host in ("localhost", "127.0.0.1", "::1") else None
    return rule


def check_host(request: web.Request, settings: ServerSettings) -> None:
    """Raise ForbiddenError for a name of another's in the Host header, where only this machine shall be served.

    A page of the web can let a name of its own mean 127.0.0.1; the browser then takes the server for a part of it.
    """
    host = request.headers.get("Host", "")
    if not settings.is_local or not host:
        return
    name = (urlsplit(f"//{host}").hostname or "") if host.count("]") == host.count("[") else ""
    if is_loopback(name) or name in settings.allowed_hosts or name == socket.gethostname().lower():
        return
    try:
        ipaddress.ip_address(name)
    except ValueError as error:
        raise ForbiddenError(f"the server is not called {host!r:.80}; --allowed-hosts names the names that it has "
                             "beside localhost") from error


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
