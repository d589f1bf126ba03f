"""Anthropic's dialect: messages, and how many tokens they have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager

from aiohttp import web

from ggpy.server.anthropic.breakpoints import LIFETIMES_S, Keep
from ggpy.server.anthropic.reply import (
    Ending,
    EventWriter,
    Usage,
    content_blocks,
    error_body,
    error_frame,
    message_object,
    new_message_id,
)
from ggpy.server.anthropic.request import MessageRequest, read_request, with_keeps
from ggpy.server.chat.core import FinishReason, PreparedChat, complete_chat, prepare, stream_chat
from ggpy.server.context import Server
from ggpy.server.jobs.generation import Answer
from ggpy.server.jobs.job_fields import read_ping_s
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.web import lanes, sse
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route

PING = sse.frame({"type": "ping"}, "ping")


def routes(server: Server) -> list[Route]:
    """/v1/messages and what belongs to it."""
    async def messages(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with model_of(server, fields) as model:
            wanted = await lanes.read(read_request, fields, server, model, is_official=is_official(request))
            chat = await prepare(model, wanted.chat)
            if wanted.is_marked:
                chat = await asyncio.to_thread(with_keeps, chat, wanted, model)
            if not wanted.is_stream:
                return await whole(model, wanted, chat)
            return await sse.send_frames(request, events(model, wanted, chat), error_frame=error_frame, ping=PING,
                                         ping_s=read_ping_s(fields, server.settings))

    async def count_tokens(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with model_of(server, fields) as model:
            wanted = await lanes.read(read_request, fields, server, model, is_official=is_official(request))
            return json_response({"input_tokens": (await prepare(model, wanted.chat, must_fit=False)).n_tokens})

    return [Route("POST", "/v1/messages", messages, error_body),
            Route("POST", "/v1/messages/count_tokens", count_tokens, error_body)]


def is_official(request: web.Request) -> bool:
    """Whether the client is one of Anthropic's: those say which version of the API they mean."""
    return "anthropic-version" in request.headers


@asynccontextmanager
async def model_of(server: Server, fields: Fields) -> AsyncIterator[LoadedModel]:
    """The model that a request names. Raises UnknownModelError for one that there is not."""
    name = fields.text("model")
    async with server.models.use(server.models.find(name).name) as model:
        yield model


async def whole(model: LoadedModel, wanted: MessageRequest, chat: PreparedChat) -> web.Response:
    """A reply in one piece."""
    (found,) = await complete_chat(model, chat)
    parsed, answer = found.parsed, found.answer
    blocks = [] if wanted.is_warming else content_blocks(parsed.reasoning, parsed.content, parsed.calls)
    return json_response(message_object(
        new_message_id(), model.name, blocks, ending(answer, found.finish_reason, wanted),
        usage(answer, wanted, chat.job.keeps, len(answer.tokens))))


async def events(model: LoadedModel, wanted: MessageRequest, chat: PreparedChat) -> AsyncGenerator[bytes, None]:
    """A reply as it comes."""
    writer = EventWriter(new_message_id(), model.name)
    is_begun = False
    async with aclosing(stream_chat(model, chat)) as deltas:
        async for delta in deltas:
            answer, data = delta.answer, b""
            if not is_begun:
                is_begun = True
                data = writer.start(usage(answer, wanted, chat.job.keeps, 0))
            if not wanted.is_warming:
                data += b"".join(map(writer.write, delta.events))
            if delta.is_last:
                assert delta.finish_reason is not None, "the last delta says why"
                data += writer.finish(ending(answer, delta.finish_reason, wanted),
                                      usage(answer, wanted, chat.job.keeps, delta.n_generated))
            if data:
                yield data


def ending(answer: Answer, reason: FinishReason, wanted: MessageRequest) -> Ending:
    """Why an answer ended, in Anthropic's words."""
    if wanted.is_warming:
        return Ending("max_tokens")
    if reason == "tool_calls":
        return Ending("tool_use")
    if reason == "length":
        return Ending("max_tokens")
    if answer.stopping_word in wanted.stop_sequences:
        return Ending("stop_sequence", answer.stopping_word)
    return Ending("end_turn")


def usage(answer: Answer, wanted: MessageRequest, keeps: Sequence[Keep], n_generated: int) -> Usage:
    """What was read anew of the beginning that is kept is stored, but for a prompt's last token: that is read each
    time."""
    def n_stored(keeps: Iterable[Keep]) -> int:
        return max(0, min(max((n for n, _ in keeps), default=0), answer.n_prompt - 1) - answer.n_cached)

    hourly = (keep for keep in keeps if keep[1] == LIFETIMES_S["1h"])       # these come first
    return Usage(answer.n_prompt, answer.n_cached, n_stored(keeps), 0 if wanted.is_warming else n_generated,
                 answer.cache_miss, n_stored(hourly))
