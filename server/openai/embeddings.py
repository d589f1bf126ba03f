"""OpenAI's embeddings."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.jobs.embeddings import (
    in_base64,
    plain_rows,
    pooled,
    read_inputs,
    require_embeddings,
    shortened,
    usage,
)
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/v1/embeddings."""
    async def embeddings(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            if "input" not in fields and "content" in fields:
                return json_response(await plain_rows(server, model, fields, "content"))
            return json_response(await openai_reply(server, model, fields))

    return [Route("POST", "/v1/embeddings", embeddings)]


async def openai_reply(server: Server, model: LoadedModel, fields: Fields) -> dict[str, Any]:
    """A vector of length 1 for each text."""
    require_embeddings(server, model)
    texts = await asyncio.to_thread(read_inputs, fields, "input", model.tokenizer)
    encoding = fields.choice("encoding_format", ("float", "base64"), "float")
    dimensions = fields.integer("dimensions", least=1)
    pooling = server.settings.pooling or model.ready.pooling
    if pooling == "none":
        raise RequestError("Pooling type 'none' is not OAI compatible. Please use a different pooling type")
    norm = fields.integer("embd_normalize", default=server.settings.embd_normalize, least=-1, most=64)
    rows = [shortened(row[None], dimensions)[0] for row in await pooled(model, texts, pooling, norm)]
    if encoding == "base64":
        data = [{"embedding": in_base64(row), "index": i, "object": "embedding", "encoding_format": "base64"}
                for i, row in enumerate(rows)]
    else:
        data = [{"embedding": row.tolist(), "index": i, "object": "embedding"} for i, row in enumerate(rows)]
    return {"model": fields.text("model", default=model.name), "object": "list", "usage": usage(texts), "data": data}
