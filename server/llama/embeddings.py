"""Embeddings and reranking, as llama-server and OpenAI have them."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web

from ggpy.engine.config import Pooling
from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.embeddings import in_base64, normalized, pooled, read_inputs, shortened
from ggpy.server.errors import NotSupportedError
from ggpy.server.fields import Fields, read_fields
from ggpy.server.models import LoadedModel
from ggpy.server.replies import json_response
from ggpy.server.routes import Route

MAX_DOCUMENTS = 4096


def routes(server: Server) -> list[Route]:
    """/embeddings, /v1/embeddings and /rerank, with their other names."""
    async def native(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            return json_response(await native_reply(server, model, fields, "input" if "input" in fields else "content"))

    async def openai(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            if "input" not in fields and "content" in fields:
                return json_response(await native_reply(server, model, fields, "content"))
            return json_response(await openai_reply(server, model, fields))

    async def rerank(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            return json_response(await rerank_reply(server, model, fields))

    return [
        *(Route("POST", path, native) for path in ("/embedding", "/embeddings")),
        Route("POST", "/v1/embeddings", openai),
        *(Route("POST", path, rerank) for path in ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")),
    ]


def require_embeddings(server: Server, model: LoadedModel) -> None:
    if not server.settings.has_embeddings and not model.ready.is_encoder:
        raise NotSupportedError("This server does not support embeddings. Start it with `--embeddings`")


async def native_reply(server: Server, model: LoadedModel, fields: Fields, name: str) -> list[dict[str, Any]]:
    """A row for each text, or one for each of its tokens, which are not normalised then."""
    require_embeddings(server, model)
    texts = await asyncio.to_thread(read_inputs, fields, name, model.tokenizer)
    norm = fields.integer("embd_normalize", default=server.settings.embd_normalize, least=-1, most=64)
    pooling: Pooling = server.settings.pooling or model.ready.pooling or "none"
    found = await model.client.embed(texts, pooling)
    rows = found if pooling == "none" else [normalized(row, norm) for row in found]
    return [{"index": i, "embedding": row.tolist()} for i, row in enumerate(rows)]


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


def usage(texts: list[list[int]]) -> dict[str, int]:
    n_tokens = sum(map(len, texts))
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
