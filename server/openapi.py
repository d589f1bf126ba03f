"""/openapi.json: the document is made from the routes that are served."""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any

from aiohttp import web

from ggpy.server.context import Server
from ggpy.server.openapi_bodies import QUERIES, SUMMARIES, fields_of, plain
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import ROUTES, Route

TYPES: dict[str, dict[str, Any]] = {
    "n": {"type": ["number", "null"]}, "i": {"type": ["integer", "null"]}, "b": {"type": ["boolean", "null"]},
    "s": {"type": ["string", "null"]}, "a": {"type": ["array", "null"]}, "o": {"type": ["object", "null"]},
    "t": {"type": ["string", "array", "null"], "items": {"type": "string"}}, "x": {},
}
NEEDED = {"s": {"type": "string"}, "a": {"type": "array"}, "t": {"type": ["string", "array"],
                                                                 "items": {"type": "string"}}}
HIDDEN = frozenset({"/{path}", "/openapi.json", "/tools", "/cors-proxy"})
STREAMING = frozenset({"/completion", "/v1/completions", "/infill", "/chat/completions", "/responses", "/messages"})


def routes(server: Server) -> list[Route]:
    """/openapi.json."""
    async def document(request: web.Request) -> web.Response:
        return json_response(openapi(request.app, server.settings.api_prefix))

    return [Route("GET", "/openapi.json", document)]


def openapi(app: web.Application, prefix: str = "") -> dict[str, Any]:
    """The OpenAPI 3.1 document of all routes of `app`."""
    paths: dict[str, dict[str, Any]] = {}
    for route in app.router.routes():
        assert route.resource is not None
        path = route.resource.canonical.removeprefix(prefix)
        if path and path not in HIDDEN:
            paths.setdefault(prefix + path, {})[route.method.lower()] = operation(
                route.method, path, app[ROUTES][route.handler].dialect)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ggpy", "version": metadata.version("ggpy"),
                 "description": "The APIs of llama-server, OpenAI, Anthropic and Ollama."},
        "paths": dict(sorted(paths.items())),
        "components": {"schemas": {"Error": ERROR}, "securitySchemes": {
            "bearer": {"type": "http", "scheme": "bearer"},
            "header": {"type": "apiKey", "in": "header", "name": "X-Api-Key"}}},
        "security": [{}, {"bearer": []}, {"header": []}],
    }


ERROR = {"type": "object", "properties": {"error": {"type": ["object", "string"], "properties": {
    "message": {"type": "string"}, "type": {"type": "string"}, "code": {}}}}, "required": ["error"]}


def operation(method: str, path: str, dialect: str) -> dict[str, Any]:
    """What one method of a path, which `dialect` has, takes and gives."""
    names = re.findall(r"{(\w+)}", path)
    parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    for word in QUERIES.get(plain(path), "").split():
        parameters.append({"name": word.rstrip("!"), "in": "query", "required": word.endswith("!"),
                           "schema": {"type": "string"}})
    described: dict[str, Any] = {
        "operationId": f"{method.lower()} {path}", "tags": [dialect],
        "summary": SUMMARIES.get(path, SUMMARIES.get(plain(path), path.strip("/").replace("/", " "))),
        "responses": {"200": success(method, path), "default": {"description": "what is wrong", "content": {
            "application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}}}
    if parameters:
        described["parameters"] = parameters
    fields = fields_of(path) if method in ("POST", "DELETE") else None
    if fields is not None and (method == "POST" or path == "/api/delete"):
        described["requestBody"] = {"required": any(is_needed for _, is_needed in fields.values()), "content": {
            "application/json": {"schema": schema(path, fields)}}}
    if path == "/api/blobs/{digest}" and method == "POST":
        described["requestBody"] = {"required": True, "content": {"application/octet-stream": {"schema": {}}}}
    return described


def schema(path: str, fields: dict[str, tuple[str, bool]]) -> dict[str, Any]:
    if plain(path) == "/lora-adapters":
        return {"type": "array", "items": {"type": "object", "properties": {
            "id": {"type": "integer"}, "scale": {"type": "number"}}, "required": ["id", "scale"]}}
    needed = [name for name, (_, is_needed) in fields.items() if is_needed]
    properties = {name: NEEDED.get(kind, TYPES[kind]) if is_needed else TYPES[kind]
                  for name, (kind, is_needed) in fields.items()}
    return {"type": "object", "properties": properties, **({"required": needed} if needed else {})}


def success(method: str, path: str) -> dict[str, Any]:
    """The reply when all went well."""
    kinds = ["application/json"]
    if method == "POST" and (path in STREAMING or plain(path) in STREAMING):
        kinds.append("text/event-stream")
    if path in ("/api/chat", "/api/generate", "/api/pull", "/api/create"):
        kinds.append("application/x-ndjson")
    if path == "/models/sse":
        kinds = ["text/event-stream"]
    if path in ("/", "/metrics"):
        kinds = ["text/html", "text/plain"] if path == "/" else ["text/plain"]
    return {"description": "what was asked for", "content": {kind: {"schema": {}} for kind in kinds}}
