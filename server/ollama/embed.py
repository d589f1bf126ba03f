"""Vectors of texts, as Ollama has them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.jobs.embeddings import MAX_TEXTS, pooled, shortened
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.ollama.lines import Stopwatch, ollama_body, read_body
from ggpy.server.ollama.names import find_entry, model_field
from ggpy.server.ollama.options import apply_keep_alive
from ggpy.server.ollama.request import wanted_keep_s
from ggpy.server.web.fields import Fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/api/embed, and /api/embeddings, which came before it."""
    async def embed(request: web.Request) -> web.Response:
        watch, fields = Stopwatch(), await read_body(request)
        name = model_field(fields)
        entry = find_entry(server, name)
        texts = read_texts(fields)
        if not texts:
            return json_response({"model": name, "embeddings": []})
        apply_keep_alive(entry, wanted_keep_s(request, fields, server), entry.idle_s(server.settings))
        dimensions = fields.integer("dimensions", default=0, least=0)
        async with server.models.use(entry.name, autoload=True) as model:
            watch.model_is_there()
            tokens = await asyncio.to_thread(text_tokens, texts, model, is_cut=fields.boolean("truncate", default=True))
            rows = [shortened(row[None], dimensions or None)[0].tolist()
                    for row in await pooled(model, tokens, pooling(server, model))]
            return json_response({"model": name, "embeddings": rows, **watch.durations(),
                                  "prompt_eval_count": sum(map(len, tokens))})

    async def embeddings(request: web.Request) -> web.Response:
        fields = await read_body(request)
        entry = find_entry(server, model_field(fields))
        prompt = fields.text("prompt", default="")
        if not prompt:
            return json_response({"embedding": []})
        apply_keep_alive(entry, wanted_keep_s(request, fields, server), entry.idle_s(server.settings))
        async with server.models.use(entry.name, autoload=True) as model:
            tokens = await asyncio.to_thread(text_tokens, [prompt], model, is_cut=True)
            (row,) = await pooled(model, tokens, pooling(server, model), norm=-1)
            return json_response({"embedding": row.tolist()})

    return [Route("POST", "/api/embed", embed, ollama_body), Route("POST", "/api/embeddings", embeddings, ollama_body)]


def read_texts(fields: Fields) -> list[str]:
    """What is to be embedded: a text, or an array of them. Raises RequestError."""
    value = fields.get("input")
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestError("invalid input type; expected a string or an array of strings")
    if len(texts) > MAX_TEXTS:
        raise fields.error("input", f"{len(texts):,} texts are too many; expected {MAX_TEXTS:,} at most")
    return texts if any(texts) else []


def text_tokens(texts: Sequence[str], model: LoadedModel, *, is_cut: bool) -> list[list[int]]:
    """The tokens of each text, the last one kept where it is too long. Raises RequestError where it must not be cut."""
    ready = model.ready
    limit = min(ready.n_ctx, ready.max_batch_tokens) if ready.is_encoder else ready.n_ctx - 1
    found = []
    for text in texts:
        tokens = model.tokenizer.encode(text, add_special=True, parse_special=True)
        if not tokens:
            raise RequestError("input cannot be empty: this model has no token for it")
        if len(tokens) > limit:
            if not is_cut:
                raise RequestError("the input length exceeds the context length")
            tokens = [*tokens[: limit - 1], tokens[-1]] if model.tokenizer.add_eos else tokens[:limit]
        found.append(tokens)
    return found


def pooling(server: Server, model: LoadedModel) -> Any:
    """Which vector of a text counts; a text has one here, so there is no "none"."""
    chosen = server.settings.pooling or model.ready.pooling
    return None if chosen in ("none", "rank") else chosen
