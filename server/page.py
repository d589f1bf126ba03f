"""What is at `/`: a page to chat, the files of a folder in its place, or what an Ollama server says of itself."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError
from ggpy.server.settings import ServerSettings
from ggpy.server.web.routes import Route

STATIC = Path(__file__).with_name("static")
# what a system says of these need not be right, and browsers insist on it
TYPES = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
         ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8"}
RUNNING = "Ollama is running"           # apps compare the whole body
# the page loads nothing of others, nothing else may load it, and text that a model writes can load nothing
POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")


def routes(server: Server) -> list[Route]:
    """`/` and the files behind it. The last of all dialects: with --path any other path may be a file."""
    settings = server.settings

    async def root(request: web.Request) -> web.StreamResponse:
        if is_ollama_wanted(request, settings):
            return web.Response(text=RUNNING)
        return file_response(settings, "/index.html")

    async def file(request: web.Request) -> web.StreamResponse:
        return file_response(settings, "/" + request.match_info["path"])

    methods = ("GET", "HEAD")
    served = [Route(method, "/", root) for method in methods]
    if settings.api_prefix:
        served += [Route(method, "", to_slash) for method in methods]
    return served + [Route(method, "/{path:.+}", file) for method in methods if settings.has_ui]


async def to_slash(request: web.Request) -> web.StreamResponse:
    """The page's own links are relative."""
    raise web.HTTPPermanentRedirect(request.path + "/")


def is_ollama_wanted(request: web.Request, settings: ServerSettings) -> bool:
    """Whether whoever asks for `/` looks for Ollama, and not for a page.

    Browsers say that they take HTML. llama-server gives the page to those, too, that take anything; Ollama's clients
    say who they are, or come to a server that stands in for Ollama.
    """
    accepted = request.headers.get("Accept", "*/*")
    if "text/html" in accepted:
        return settings.is_ollama and not settings.has_ui
    return settings.is_ollama or "*/*" not in accepted or request.headers.get("User-Agent", "").startswith("ollama")


def is_page(request: web.Request, settings: ServerSettings) -> bool:
    """Whether a request gets the page or a file of it, which need no key and no model."""
    resource = request.match_info.route.resource
    path = request.path.removeprefix(settings.api_prefix)
    return resource is not None and resource.canonical.endswith("/{path}") and find_file(settings, path) is not None


def file_response(settings: ServerSettings, path: str) -> web.StreamResponse:
    """The file at `path`. Raises NotFoundError."""
    found = find_file(settings, path)
    if found is None:
        raise NotFoundError("File Not Found")
    headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
    if (content_type := TYPES.get(found.suffix.lower())) is not None:
        headers["Content-Type"] = content_type
    if settings.static_path is None:
        headers["Content-Security-Policy"] = POLICY
    return web.FileResponse(found, headers=headers)


def find_file(settings: ServerSettings, path: str) -> Path | None:
    """The file that `path` of a URL means; None if there is none, or it lies elsewhere, whatever links say."""
    if not settings.has_ui:
        return None
    folder = (settings.static_path or STATIC).resolve()
    names = path.removeprefix("/").split("/")
    if any(name.startswith(".") or not name.isprintable() or set(name) & set('\\:') for name in names):
        return None
    try:
        found = folder.joinpath(*names).resolve()
        if found.is_dir():
            found = (found / "index.html").resolve()
        return found if found.is_file() and found.is_relative_to(folder) else None
    except (OSError, ValueError):
        return None
