"""Ollama's /api/chat."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from aiohttp import web

from ggpy.made import with_preface
from ggpy.server.chat.core import PreparedChat
from ggpy.server.chat.template_options import takes_tools
from ggpy.server.context import Server
from ggpy.server.model_pool.models import LoadedModel
from ggpy.server.ollama.answer import AnswerPart, collected, head, pieces, tail
from ggpy.server.ollama.lines import Line, Stopwatch, ollama_body, read_body, respond
from ggpy.server.ollama.messages import check_tools, read_messages, read_tools
from ggpy.server.ollama.names import find_entry, model_field
from ggpy.server.ollama.options import apply_keep_alive
from ggpy.server.ollama.request import load_or_unload, prepared, read_asked, wanted_keep_s
from ggpy.server.web import lanes
from ggpy.server.web.routes import Route


def routes(server: Server) -> list[Route]:
    """/api/chat."""
    async def chat(request: web.Request) -> web.StreamResponse:
        watch, fields = Stopwatch(), await read_body(request)
        name = model_field(fields)
        entry = find_entry(server, name)
        messages, tools = await lanes.read(lambda: (read_messages(fields, name), read_tools(fields)))
        keep_s = wanted_keep_s(request, fields, server)
        is_stream = fields.boolean("stream", default=True)
        if not messages:
            return await load_or_unload(request, server, entry, name, keep_s, {"message": message(AnswerPart())})
        apply_keep_alive(entry, keep_s, entry.idle_s(server.settings))
        async with server.models.use(entry.name, autoload=True) as model:
            watch.model_is_there()
            check_tools(tools, takes_tools=takes_tools(model), model=name)
            asked = await lanes.read(read_asked, fields, name, entry, model, server, "chat")
            talk = await prepared(model, asked, with_preface(messages, entry.stored), tools)
            lines = chat_lines(model, talk, name, watch)
            return await respond(request, lines) if is_stream else await collected(lines, join)

    return [Route("POST", "/api/chat", chat, ollama_body)]


def message(part: AnswerPart) -> Line:
    """A message of the assistant."""
    found: Line = {"role": "assistant", "content": part.content}
    if part.reasoning:
        found["thinking"] = part.reasoning
    if part.calls:
        found["tool_calls"] = part.calls
    return found


async def chat_lines(model: LoadedModel, chat: PreparedChat, name: str,
                     watch: Stopwatch) -> AsyncGenerator[Line, None]:
    """The answer as it comes; the last line says nothing more, but how it went."""
    async with aclosing(pieces(model, chat, watch)) as found:
        async for piece in found:
            if piece.part or piece.logprobs:
                yield {**head(name), "message": message(piece.part), **tail(piece.logprobs)}
            if piece.final is not None:
                yield {**head(name), "message": message(AnswerPart()), **piece.final}


def join(last: Line, lines: Sequence[Line]) -> None:
    """Add what `lines` say to the message of the last one."""
    part = AnswerPart()
    for line in lines:
        part.content += line["message"]["content"]
        part.reasoning += line["message"].get("thinking", "")
        part.calls += line["message"].get("tool_calls", ())
    last["message"] = message(part)
