"""Vectors of texts, for every dialect that tells them."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from ggpy.arrays import Float32
from ggpy.engine.config import Pooling
from ggpy.errors import RequestError
from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.jobs.prompts import is_prompt_list, object_tokens, prompt_tokens
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web.fields import Fields
from ggpy.text import Tokenizer

MAX_TEXTS = 4096        # of one request
INT16_MAX = 32760       # what llama.cpp scales the largest number to


def read_inputs(fields: Fields, name: str, tokenizer: Tokenizer) -> list[list[int]]:
    """The tokens of each text in field `name`: one, or an array of them. Raises FieldError."""
    value = fields.get(name)
    if value is None:
        raise fields.missing(name)
    if value == []:
        raise fields.error(name, "it is an empty array; expected one text at least")
    items = value if is_prompt_list(value) else [value]
    if len(items) > MAX_TEXTS:
        raise fields.error(name, f"{len(items):,} texts are too many; expected {MAX_TEXTS:,} at most")
    texts = [input_tokens(fields, f"{name}[{i}]" if len(items) > 1 else name, item, tokenizer)
             for i, item in enumerate(items)]
    if not all(texts):
        raise RequestError("Input content cannot be empty")
    return texts


def input_tokens(fields: Fields, name: str, item: Any, tokenizer: Tokenizer) -> list[int]:
    if not isinstance(item, dict) or "content" not in item:
        return prompt_tokens(fields, name, item, tokenizer)
    parts = Fields(item, f"{fields.path}{name}.")
    texts = []
    for part in parts.objects("content"):
        if part.text("type") != "text":
            raise part.error("type", "expected text: this model reads nothing else")
        texts.append(part.text("text", default=""))
    return object_tokens(Fields({"prompt_string": "".join(texts)}), tokenizer)


def normalized(rows: Float32, norm: int) -> Float32:
    """`rows` (n, width), each divided by its norm: -1 none, 0 the largest number becomes 32760, 1 the sum, 2 the
    length, above 2 that p-norm. A row of zeros stays."""
    if norm < 0:
        return rows
    size = np.abs(rows.astype(np.float64))
    if norm == 0:
        norms = size.max(axis=1, keepdims=True) / INT16_MAX
    else:
        norms = (size**norm).sum(axis=1, keepdims=True) ** (1 / norm)
    found: Float32 = np.divide(rows, norms, out=np.zeros(rows.shape, np.float64), where=norms > 0).astype(np.float32)
    return found


def shortened(rows: Float32, dimensions: int | None) -> Float32:
    """The first `dimensions` numbers of each row, of length 1 again; None: all of them."""
    if dimensions is None or dimensions >= rows.shape[1]:
        return rows
    return normalized(rows[:, :dimensions], 2)


def in_base64(row: Float32) -> str:
    """`row` as little-endian float32."""
    return base64.b64encode(row.astype("<f4").tobytes()).decode()


async def pooled(model: LoadedModel, texts: Sequence[Sequence[int]], pooling: Any, norm: int = 2) -> list[Float32]:
    """A vector (width,) for each of `texts`. `pooling` None is the model's own, "mean" where it has none."""
    rows = await model.client.embed(texts, pooling)
    return [normalized(row, norm)[0] for row in rows]


def require_embeddings(server: Server, model: LoadedModel) -> None:
    if not server.settings.has_embeddings and not model.ready.is_encoder:
        raise NotSupportedError("This server does not support embeddings. Start it with `--embeddings`")


async def plain_rows(server: Server, model: LoadedModel, fields: Fields, name: str) -> list[dict[str, Any]]:
    """A row for each text, or one for each of its tokens, which are not normalised then."""
    require_embeddings(server, model)
    texts = await asyncio.to_thread(read_inputs, fields, name, model.tokenizer)
    norm = fields.integer("embd_normalize", default=server.settings.embd_normalize, least=-1, most=64)
    pooling: Pooling = server.settings.pooling or model.ready.pooling or "none"
    found = await model.client.embed(texts, pooling)
    rows = found if pooling == "none" else [normalized(row, norm) for row in found]
    return [{"index": i, "embedding": row.tolist()} for i, row in enumerate(rows)]


def usage(texts: list[list[int]]) -> dict[str, int]:
    n_tokens = sum(map(len, texts))
    return {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
