"""llama-server's utilities of texts: tokens, and prompts of chats."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ggpy.server.chat.core import render
from ggpy.server.chat.request import read_conversation
from ggpy.server.context import Server
from ggpy.server.jobs.generation import Job
from ggpy.server.jobs.prompts import mixed_tokens
from ggpy.server.web import lanes
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route
from ggpy.text import Tokenizer


def routes(server: Server) -> list[Route]:
    """/tokenize, /detokenize and /apply-template."""
    async def tokenize(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            tokens = await asyncio.to_thread(content_tokens, fields, model.tokenizer)
            if not fields.boolean("with_pieces", default=False):
                return json_response({"tokens": tokens})
            return json_response({"tokens": await lanes.read(pieces, tokens, model.tokenizer)})

    async def detokenize(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            return json_response({"content": await lanes.read(text_of_tokens, fields, model.tokenizer)})

    async def apply_template(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            chat = read_conversation(fields, server.settings, Job(tokens=()))
            prompt, _ = await asyncio.to_thread(render, model, chat)
            return json_response({"prompt": prompt.text})

    return [Route("POST", "/tokenize", tokenize), Route("POST", "/detokenize", detokenize),
            Route("POST", "/apply-template", apply_template)]


def content_tokens(fields: Fields, tokenizer: Tokenizer) -> list[int]:
    """The tokens of `content`, a text or an array of texts and tokens; none if it is absent."""
    content = fields.get("content")
    add_special = fields.boolean("add_special", default=False)
    parse_special = fields.boolean("parse_special", default=True)
    parts = [content] if isinstance(content, str) else content or []
    if not isinstance(parts, list):
        raise fields.error("content", "expected a string, or an array of strings and tokens")
    return mixed_tokens(fields, "content", parts, tokenizer, add_special=add_special, parse_special=parse_special)


def text_of_tokens(fields: Fields, tokenizer: Tokenizer) -> str:
    """The text of field `tokens`."""
    return tokenizer.decode(mixed_tokens(fields, "tokens", fields.array("tokens") or [], tokenizer))


def pieces(tokens: list[int], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """`tokens`, each with its text."""
    return [{"id": token, "piece": piece(token, tokenizer)} for token in tokens]


def piece(token: int, tokenizer: Tokenizer) -> str | list[int]:
    """The text of a token, or its bytes if they are none alone."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return list(data)
