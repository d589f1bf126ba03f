"""Ollama's /api/generate."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from aiohttp import web

from ggpy.errors import RequestError, shown
from ggpy.made import with_preface
from ggpy.server.chat.core import ChatRequest, PreparedChat
from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.jobs.infill import infill_tokens
from ggpy.server.model_pool.models import Entry, LoadedModel
from ggpy.server.ollama.answer import AnswerPart, collected, head, pieces, tail
from ggpy.server.ollama.lines import Line, Stopwatch, ollama_body, read_body, respond
from ggpy.server.ollama.names import find_entry, model_field
from ggpy.server.ollama.options import apply_keep_alive, refuse_images
from ggpy.server.ollama.request import (
    Asked,
    cut,
    limited,
    load_or_unload,
    prepared,
    read_asked,
    wanted_keep_s,
    with_template,
)
from ggpy.server.web import lanes
from ggpy.server.web.fields import Fields
from ggpy.server.web.routes import Route
from ggpy.text import ChatPrompt


def routes(server: Server) -> list[Route]:
    """/api/generate."""
    async def generate(request: web.Request) -> web.StreamResponse:
        watch, fields = Stopwatch(), await read_body(request)
        name = model_field(fields)
        entry = find_entry(server, name)
        refuse_images(fields, name)
        keep_s = wanted_keep_s(request, fields, server)
        if not fields.text("prompt", default="") and not fields.text("suffix", default=""):
            return await load_or_unload(request, server, entry, name, keep_s, {"response": ""})
        is_raw, is_stream = fields.boolean("raw", default=False), fields.boolean("stream", default=True)
        if is_raw and any(map(fields.get, ("system", "template", "context"))):
            raise RequestError("raw mode does not support template, system, or context")
        apply_keep_alive(entry, keep_s, entry.idle_s(server.settings))
        async with server.models.use(entry.name, autoload=True) as model:
            watch.model_is_there()
            if template := fields.text("template"):
                model = await asyncio.to_thread(with_template, model, template)
            asked = await lanes.read(read_asked, fields, name, entry, model, server, "generate")
            chat = await prompted(fields, asked, model, entry, is_raw=is_raw)
            lines = response_lines(model, chat, name, watch, has_context=not is_raw and "suffix" not in fields)
            return await respond(request, lines) if is_stream else await collected(lines, join)

    return [Route("POST", "/api/generate", generate, ollama_body)]


async def prompted(fields: Fields, asked: Asked, model: LoadedModel, entry: Entry, *, is_raw: bool) -> PreparedChat:
    """The prompt: as it stands, around a gap, or as what the user says. Raises RequestError."""
    prompt = fields.text("prompt", default="")
    if is_raw or fields.text("suffix"):
        read = raw_tokens if is_raw else gap_tokens
        tokens = cut(await asyncio.to_thread(read, fields, asked, model), asked)
        job = limited(dataclasses.replace(asked.job, tokens=tokens), asked.limit)
        request = ChatRequest(messages=(), job=job, reasoning_format="none")
        return PreparedChat(request=request, prompt=ChatPrompt(prompt), job=job, style=model.answer_style,
                            tool_format=None, is_open=False)
    system = fields.text("system")
    messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    messages.append({"role": "user", "content": prompt})
    before = await lanes.read(context_tokens, fields, model.tokenizer.n_vocab)
    stored = entry.stored
    if before and stored is not None:       # its messages stand in the context
        stored = msgspec.structs.replace(stored, messages=())
    chat = await prepared(model, asked, with_preface(messages, stored))
    if not before:
        return chat
    tokens = list(chat.job.tokens)
    if model.tokenizer.add_bos and tokens[:1] == [model.tokenizer.bos_id]:
        tokens = tokens[1:]
    job = dataclasses.replace(chat.job, tokens=cut([*before, *tokens], asked))
    return dataclasses.replace(chat, job=limited(job, asked.limit))


def context_tokens(fields: Fields, n_vocab: int) -> list[int]:
    """What was said before, by the tokens that an answer told. Raises FieldError."""
    tokens = fields.array("context") or []
    for i, token in enumerate(tokens):
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < n_vocab:
            raise fields.error(f"context[{i}]", f"expected a token from 0 to {n_vocab - 1}, found {shown(token)}")
    return tokens


def raw_tokens(fields: Fields, asked: Asked, model: LoadedModel) -> list[int]:
    return model.tokenizer.encode(fields.text("prompt", default=""), add_special=True, parse_special=True)


def gap_tokens(fields: Fields, asked: Asked, model: LoadedModel) -> list[int]:
    """A prompt that asks for what stands between prompt and suffix. Raises RequestError if the model knows none."""
    parts = Fields({"input_prefix": fields.text("prompt", default=""), "input_suffix": fields.text("suffix")})
    try:
        return infill_tokens(
            parts, model.tokenizer, n_ctx=asked.limit, n_batch=min(asked.settings.n_batch, asked.limit),
            n_predict=asked.job.params.max_tokens, is_spm=asked.settings.is_spm_infill)
    except NotSupportedError as error:
        raise RequestError(f'"{asked.name}" does not support insert') from error


async def response_lines(model: LoadedModel, chat: PreparedChat, name: str, watch: Stopwatch, *,
                         has_context: bool) -> AsyncGenerator[Line, None]:
    """The answer as it comes; the last line says nothing more, but how it went."""
    async with aclosing(pieces(model, chat, watch)) as found:
        async for piece in found:
            if piece.part or piece.logprobs:
                yield {**head(name), **response(piece.part), **tail(piece.logprobs)}
            if piece.final is not None:
                context = {"context": piece.tokens} if has_context else {}
                yield {**head(name), "response": "", **piece.final, **context}


def response(part: AnswerPart) -> Line:
    return {"response": part.content, **({"thinking": part.reasoning} if part.reasoning else {})}


def join(last: Line, lines: Sequence[Line]) -> None:
    """Add what `lines` say to the last one."""
    last["response"] = "".join(line["response"] for line in lines)
    if thinking := "".join(line.get("thinking", "") for line in lines):
        last["thinking"] = thinking
