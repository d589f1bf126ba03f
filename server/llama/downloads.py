"""llama-server's routes that bring models onto this machine, and delete them: POST and DELETE /models."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing, suppress
from dataclasses import asdict

from aiohttp import web

from ggpy.errors import GgpyError, PullError, RequestError
from ggpy.hub import huggingface, names, resolve
from ggpy.server.context import Server
from ggpy.server.errors import NotFoundError
from ggpy.server.model_pool.downloads import Pullable, fetched, find_pullable, pulled_as, reload
from ggpy.server.model_pool.model_lookup import named_entry
from ggpy.server.model_pool.models import Entry
from ggpy.server.web.fields import read_fields
from ggpy.server.web.replies import json_response
from ggpy.server.web.routes import Route

logger = logging.getLogger("ggpy")


def routes(server: Server) -> list[Route]:
    """POST and DELETE /models; none if there is one model."""
    if server.models.is_single:
        return []

    async def download(request: web.Request) -> web.Response:
        fields = await read_fields(request)
        name = fields.text("model")
        if not name:
            raise fields.missing("model")
        begin(server, name)
        return json_response({"success": True})

    async def delete(request: web.Request) -> web.Response:
        name = request.query.get("model")
        if not name:
            raise RequestError("model must be a non-empty string")
        await remove(server, name)
        return json_response({"success": True})

    return [Route("POST", "/models", download, changes_server=True),
            Route("DELETE", "/models", delete, changes_server=True)]


def begin(server: Server, name: str) -> None:
    """Begin to bring the model called `name` onto this machine; listeners of /models/sse hear how it goes on.

    Raises RequestError for one that is here, and PullError for what cannot be pulled.
    """
    if named_entry(server.models.entries.values(), name) is not None:
        raise RequestError(f"model '{name}' already exists")
    wanted = pullable(name)
    entry = Entry(name, str(wanted) if isinstance(wanted, names.HubModel) else wanted.name, state="downloading",
                  keep_s=server.settings.sleep_idle_s)
    server.models.entries[name] = entry
    entry.download = asyncio.create_task(fetch(server, entry, wanted))


def pullable(name: str) -> Pullable:
    """What `name` stands for; user/repo[:QUANT] is one of Hugging Face. Raises PullError."""
    return find_pullable(name) or names.parse(names.hub_name(name))


async def fetch(server: Server, entry: Entry, wanted: Pullable) -> None:
    """Pull `wanted`, and tell how far it is. With --offline there is nothing to do: what is here is all there is."""
    models, end = server.models, "download_failed"
    try:
        if not server.settings.is_offline:
            await follow(server, entry, wanted)
        end = "download_finished"
    except GgpyError as error:
        logger.error("%s", error)
    finally:
        entry.download, entry.state = None, "unloaded"
        if server.settings.is_offline:
            logger.warning("%s is not downloaded: the server is --offline", entry.name)
        else:
            models.entries.pop(entry.name, None)
            reload(server.models)          # it has a name of its own now
        models.tell(entry.name, end, {})


async def follow(server: Server, entry: Entry, wanted: Pullable) -> None:
    async with aclosing(fetched(wanted)) as news:
        async for arrived in news:
            server.models.tell(entry.name, "download_progress", {"progress": {str(wanted): asdict(arrived)}})


async def cancel(entry: Entry) -> None:
    """End the download of `entry`; what has arrived is kept for the next one."""
    if entry.download is not None:
        entry.download.cancel()
        await asyncio.gather(entry.download, return_exceptions=True)


async def remove(server: Server, name: str) -> None:
    """Delete a model that was pulled. Raises NotFoundError for an unknown one, RequestError for somebody's own file."""
    entry = named_entry(server.models.entries.values(), name)
    if entry is None:
        raise NotFoundError(f"model name={name} is not found")
    wanted = pulled_as(entry)
    if wanted is None:
        raise RequestError(f"model name={name} is not removable (not from cache)")
    await cancel(entry)
    await server.models.unload(entry)
    server.models.entries.pop(entry.name, None)
    if isinstance(wanted, names.HubModel):
        await asyncio.to_thread(huggingface.remove, wanted)
    else:
        with suppress(PullError):       # there may be nothing of it
            await asyncio.to_thread(resolve.remove, wanted)
    server.models.tell(entry.name, "model_remove", {})
