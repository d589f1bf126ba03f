"""llama-server's own embeddings, and reranking."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.jobs.embeddings import plain_rows, usage
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route

MAX_DOCUMENTS = 4096


def routes(server: Server) -> list[Route]:
    """/embeddings and /rerank, with their other names."""
    async def native(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            return json_response(await plain_rows(server, model, fields, "input" if "input" in fields else "content"))

    async def rerank(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            return json_response(await rerank_reply(server, model, fields))

    return [
        *(Route("POST", path, native) for path in ("/embedding", "/embeddings")),
        *(Route("POST", path, rerank) for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")),
    ]


async def rerank_reply(server: Server, model: LoadedModel, fields: Fields) -> Any:
    """The documents by how well they fit the query, the best first. With `texts` in the form of TEI."""
    if not server.settings.has_reranking and not model.ready.n_classes:
        raise NotSupportedError("This server does not support reranking. Start it with `--reranking`")
    is_tei = "texts" in fields and "documents" not in fields
    name = "texts" if is_tei else "documents"
    documents = fields.array(name)
    if not documents or not all(isinstance(text, str) for text in documents) or len(documents) > MAX_DOCUMENTS:
        raise fields.error(name, f"expected an array of strings, 1 to {MAX_DOCUMENTS:,}")
    query = fields.text("query")
    if query is None:
        raise fields.missing("query")
    top_n = fields.integer("top_n", default=len(documents), least=0)
    texts = await asyncio.to_thread(lambda: [model.text.rerank_tokens(query, document) for document in documents])
    scores = [float(row[0, 0]) for row in await model.client.embed(texts, "rank")]
    order = sorted(range(len(documents)), key=lambda i: -scores[i])[:top_n]
    if is_tei:
        has_text = fields.boolean("return_text", default=False)
        return [{"index": i, "score": scores[i], **({"text": documents[i]} if has_text else {})} for i in order]
    return {"model": fields.text("model", default=model.name), "object": "list", "usage": usage(texts),
            "results": [{"index": i, "relevance_score": scores[i]} for i in order]}
