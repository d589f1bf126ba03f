"""Ollama's /api/pull: models of the catalogue and of Hugging Face, with news of how far they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from types import TracebackType
from typing import Self

from aiohttp import web

from ggpy.errors import PullError, RequestError
from ggpy.hub import huggingface, names
from ggpy.hub import resolve as resolving
from ggpy.hub.catalogue import CatalogueEntry
from ggpy.hub.catalogue import find as find_in_catalogue
from ggpy.hub.model_names import ModelName
from ggpy.server.context import Server
from ggpy.server.errors import NotSupportedError
from ggpy.server.llama_router import reload
from ggpy.server.ollama_lines import Line, ollama_body, read_body, respond
from ggpy.server.ollama_names import is_here, known_entry, model_field
from ggpy.server.replies import json_response
from ggpy.server.routes import Route

NEWS_S = 0.2            # how often a stream tells how far a pull is
DIGEST_SHOWN = 12       # characters of it in a line


def routes(server: Server) -> list[Route]:
    """/api/pull, and /api/push, which there is nowhere to."""
    async def pull(request: web.Request) -> web.StreamResponse:
        fields = await read_body(request)
        lines = pulling(server, model_field(fields))
        return await told(request, lines, is_stream=fields.boolean("stream", default=True))

    async def push(request: web.Request) -> web.StreamResponse:
        raise NotSupportedError("this server does not push models anywhere")

    return [Route("POST", "/api/pull", pull, ollama_body, changes_models=True),
            Route("POST", "/api/push", push, ollama_body)]


async def told(request: web.Request, lines: AsyncGenerator[Line, None], *, is_stream: bool) -> web.StreamResponse:
    """All lines as they come, or the last one alone."""
    if is_stream:
        return await respond(request, lines)
    last: Line = {}
    async with aclosing(lines):
        async for line in lines:
            last = line
    return json_response(last)


async def pulling(server: Server, name: str) -> AsyncGenerator[Line, None]:
    """Bring the model called `name` onto this machine. Raises PullError, also for an unknown one."""
    yield {"status": "pulling manifest"}
    entry = known_entry(server, name)
    if entry is None or not is_here(entry):
        wanted = pullable(name)
        if server.models.is_single:
            raise NotSupportedError(f"this server serves {server.models.single.name} alone; start it without a model")
        if server.settings.is_offline:
            raise PullError(f"pull model manifest: {name} is not on this machine, and the server is --offline")
        async with aclosing(fetched(wanted)) as lines:
            async for line in lines:
                yield line
        reload(server)
    for status in ("verifying sha256 digest", "writing manifest", "success"):
        yield {"status": status}


def pullable(name: str) -> CatalogueEntry | names.HubModel:
    """What `name` stands for. Raises PullError if it is nothing that can be pulled."""
    found = find_in_catalogue(name) or find_in_catalogue(name.removesuffix(":latest"))
    if found is not None:
        return found
    if names.is_hub_name(name):
        return names.parse(name)
    try:
        parsed = ModelName.parse(name)
    except RequestError as error:
        raise PullError(f"pull model manifest: {error}") from error
    if parsed.is_on_hub:
        return names.parse(parsed.hub_name)
    raise PullError(f"pull model manifest: file does not exist: {name}; this server pulls the models that `ggpy list` "
                    "shows, and hf.co/user/repo[:QUANT]")


async def fetched(wanted: CatalogueEntry | names.HubModel) -> AsyncGenerator[Line, None]:
    """Lines about the pull, which goes on in a thread and ends when nobody asks any more. Raises PullError."""
    news = _News()
    work = asyncio.create_task(asyncio.to_thread(_pull, wanted, news))
    work.add_done_callback(lambda _: news.changed.set())
    try:
        while not work.done():
            await news.changed.wait()
            news.changed.clear()
            if news.total:
                yield progress_line(wanted, news)
        work.result()
        if news.total:
            news.done = news.total
            yield progress_line(wanted, news)
    finally:
        news.is_cancelled = True
        work.add_done_callback(lambda task: task.cancelled() or task.exception())     # nobody else looks at it


def _pull(wanted: CatalogueEntry | names.HubModel, news: _News) -> Path:
    if isinstance(wanted, names.HubModel):
        return huggingface.pull(wanted, progress=news.start)
    return resolving.pull(wanted, news.start)


def progress_line(wanted: CatalogueEntry | names.HubModel, news: _News) -> Line:
    """How far it is; a model of Hugging Face may be several files, so it goes by its name."""
    line: Line = {"status": f"pulling {wanted}", "total": news.total}
    if isinstance(wanted, CatalogueEntry):
        line |= {"status": f"pulling {wanted.sha256[:DIGEST_SHOWN]}", "digest": f"sha256:{wanted.sha256}"}
    return {**line, "completed": min(news.done, news.total)} if news.done else line


class _News:
    """How far a pull is, told from its thread to the event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.total = self.done = 0          # bytes
        self.is_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._told_s = 0.0

    def start(self, label: str, total_bytes: int) -> Self:
        self.total = total_bytes
        return self

    def update(self, done_bytes: int) -> None:
        """Raises PullError when nobody waits any more."""
        if self.is_cancelled:
            raise PullError("the pull was cancelled")
        self.done = done_bytes
        if time.monotonic() - self._told_s > NEWS_S:
            self._told_s = time.monotonic()
            self._loop.call_soon_threadsafe(self.changed.set)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        pass
