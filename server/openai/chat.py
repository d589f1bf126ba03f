"""OpenAI's chats: /v1/chat/completions."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from ggpy.errors import RequestError
from ggpy.server.chat.core import PreparedChat, complete_chat, prepare, stream_chat
from ggpy.server.chat.reasoning import ReasoningSwitch
from ggpy.server.chat.request import read_chat
from ggpy.server.context import Server
from ggpy.server.jobs.completion import CompletionOptions, error_frame
from ggpy.server.jobs.job_fields import read_ping_s
from ggpy.server.jobs.job_settings import full_settings
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.openai.reply import ChunkWriter, ReplyOptions, completion
from ggpy.server.web import lanes, sse
from ggpy.server.web.fields import Fields, read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/v1/chat/completions, and what belongs to it, also without /v1."""
    switches: dict[str, ReasoningSwitch | None] = {}    # of the chats that run, by the id of their reply

    async def chat(request: web.Request) -> web.StreamResponse:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            asked = await lanes.read(read_chat, fields, server, model)
            prepared = await prepare(model, asked)
            options = read_options(fields, server, model, prepared)
            switches[options.id] = asked.switch
            try:
                if not fields.boolean("stream", default=False):
                    return json_response(completion(await complete_chat(model, prepared), options))
                ping_s = read_ping_s(fields, server.settings)
                return await sse.send_frames(request, frames(model, prepared, options), error_frame=error_frame,
                                             ping_s=ping_s)
            finally:
                del switches[options.id]

    async def control(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        return json_response(end_reasoning(fields, switches))

    async def input_tokens(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        async with server.models.use(fields.text("model")) as model:
            asked = await lanes.read(read_chat, fields, server, model)
            prepared = await prepare(model, asked, must_fit=False)
            return json_response({"object": "response.input_tokens", "input_tokens": prepared.n_tokens})

    handlers = {"": chat, "/control": control, "/input_tokens": input_tokens}
    return [Route("POST", f"{prefix}/chat/completions{path}", handler)
            for prefix in ("", "/v1") for path, handler in handlers.items()]


def read_options(fields: Fields, server: Server, model: LoadedModel, chat: PreparedChat) -> ReplyOptions:
    """What the reply shall have."""
    job, is_stream = chat.job, fields.boolean("stream", default=False)
    verbose = None
    if fields.boolean("verbose", default=server.settings.is_verbose):
        verbose = CompletionOptions(
            is_stream=is_stream, returns_tokens=fields.boolean("return_tokens", default=False), returns_progress=False,
            has_timings=False, probabilities=job.probabilities, fields=[],
            settings=full_settings(job.settings, job.params, job.constraint, model.tokenizer))
    return ReplyOptions(
        model=model, verbose=verbose, has_timings=fields.boolean("timings_per_token", default=False),
        has_usage=fields.nested("stream_options").boolean("include_usage", default=False),
        has_progress=job.tells_progress, has_probabilities=job.probabilities is not None,
        are_after_sampling=job.probabilities is not None and job.probabilities.after_sampling)


async def frames(model: LoadedModel, chat: PreparedChat, options: ReplyOptions) -> AsyncGenerator[bytes, None]:
    """The stream of a reply."""
    writer = ChunkWriter(options, chat.job.n)
    async with aclosing(stream_chat(model, chat)) as deltas:
        async for delta in deltas:
            if data := b"".join(map(sse.frame, writer.chunks(delta))):
                yield data + sse.DONE if writer.is_done else data


def end_reasoning(fields: Fields, switches: dict[str, ReasoningSwitch | None]) -> dict[str, object]:
    """Have the chat that `fields` names stop reasoning; what llama-server says of that."""
    name, action = fields.text("id", default=""), fields.text("action", default="")
    if not name:
        raise RequestError("missing completion id")
    if action != "reasoning_end":
        raise RequestError("unknown control action")
    if name not in switches:
        return {"success": False, "message": "no active completion for this id"}
    switch = switches[name]
    if switch is None:
        return {"success": False, "message": "reasoning control not enabled for this completion"}
    switch.is_on = True
    return {"success": True}
