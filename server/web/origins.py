"""Whose web pages may ask, read what is answered, and change something: the rule of --cors-origins."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web

from ggpy.server.errors import ForbiddenError
from ggpy.server.settings import ServerSettings, is_loopback
from ggpy.server.web.hosts import is_own_host

ANY, LOCAL = "*", "localhost"
# of apps on this machine, which Ollama serves without being told
APP_SCHEMES = frozenset({"app", "file", "tauri", "vscode-webview", "vscode-file"})


@lru_cache(16)
def rules_of(text: str) -> frozenset[str]:
    """What --cors-origins lists, separated by commas: origins, where one * stands for any text, LOCAL, or ANY."""
    return frozenset(rule for part in text.split(",") if (rule := part.strip().rstrip("/")))


def is_allowed(origin: str, rules: frozenset[str]) -> bool:
    """Whether `rules`, beside ANY, have `origin` among them."""
    if origin in rules or (LOCAL in rules and is_local(origin)):
        return True
    return any(matches(origin, rule) for rule in rules - {ANY})


def matches(origin: str, rule: str) -> bool:
    """Whether `origin` is as `rule` has it, in which each * stands for any text."""
    return fnmatchcase(origin, rule.replace("[", "[[]").replace("?", "[?]"))    # which mean something else there


def is_local(origin: str) -> bool:
    """Whether a page is of this machine, or of an app on it; browsers' extensions are not."""
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        return False
    return parts.scheme in APP_SCHEMES or (parts.scheme in ("http", "https")
                                           and (is_loopback(host) or host == "0.0.0.0"))


def is_foreign(request: web.Request, settings: ServerSettings) -> bool:
    """Whether a page of another site asks that is not listed, be the rule ANY or not.

    A page of whatever name the request came to is not the server's own: the name has to be.
    """
    origin, host = request.headers.get("Origin"), request.headers.get("Host", "")
    if origin is None or is_allowed(origin, rules_of(settings.cors_origins) | {LOCAL}):
        return False
    return origin not in (f"http://{host}", f"https://{host}") or not is_own_host(host, settings)


def check_origin(request: web.Request, settings: ServerSettings, *, changes_server: bool) -> None:
    """Raise ForbiddenError for a page of another site, as Ollama does, unless the rule has it.

    Browsers send some requests of pages to other sites without asking first. Where the rule is ANY they are answered,
    but for those that change the server.
    """
    is_any = ANY in rules_of(settings.cors_origins)
    if (is_any and not changes_server) or not is_foreign(request, settings):
        return
    origin, host = request.headers["Origin"], request.headers.get("Host", "")
    what = f"pages of {origin!r:.80} may not {'change' if is_any else 'use'} this server"
    if host and origin.partition("://")[2] == host:
        raise ForbiddenError(f"{what}: it is not known to be called {host!r:.80}; --allowed-hosts names the names that "
                             "it has")
    where = "--cors-origins, or OLLAMA_ORIGINS," if settings.is_ollama else "--cors-origins"
    if is_any:
        raise ForbiddenError(f"{what}: `*` lets pages ask, but not change models; {where} may list the origin itself")
    raise ForbiddenError(f"{what}; {where} lists those that may")


def origin_headers(request: web.Request, settings: ServerSettings) -> dict[str, str]:
    """The headers that tell a browser whether the page that asks may read the answer.

    A browser does not take "*" with credentials, so the origin is told then.
    """
    origin, rules = request.headers.get("Origin", ""), rules_of(settings.cors_origins)
    if ANY in rules and not settings.cors_credentials:
        return {"Access-Control-Allow-Origin": ANY}
    if ANY in rules or is_allowed(origin, rules):
        return {"Access-Control-Allow-Origin": origin, "Vary": "Origin"}
    return {"Vary": "Origin"}
