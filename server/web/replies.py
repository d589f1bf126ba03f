"""Replies that are one piece."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import metadata
from typing import Any

import msgspec
from aiohttp import web

from ggpy.server.errors import Body, ErrorInfo, llama_body

FINGERPRINT = f"b{metadata.version('ggpy').replace('.', '')}-ggpy"      # llama-server's begin with "b", too
JSON = "application/json; charset=utf-8"

_encode = msgspec.json.Encoder().encode


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """`value` as JSON; numbers that JSON lacks are null."""
    return web.Response(body=_encode(value), status=status, headers={"Content-Type": JSON, **(headers or {})})


def error_response(info: ErrorInfo, body: Body = llama_body) -> web.Response:
    return json_response(body(info), info.status, info.headers)
