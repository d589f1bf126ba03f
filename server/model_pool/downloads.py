"""Models that come onto this machine while the server runs, in whichever dialect they are asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ggpy.errors import PullError, RequestError
from ggpy.hub import catalogue, huggingface, names, resolve
from ggpy.hub.model_names import ModelName
from ggpy.server.model_pool.discovery import find_entries
from ggpy.server.model_pool.manager import ModelManager
from ggpy.server.model_pool.models import Entry

NEWS_S = 0.2            # how often it is told how far a pull is

Pullable = catalogue.CatalogueEntry | names.HubModel


@dataclass(frozen=True, slots=True)
class Arrived:
    """How much of a model is here."""

    done: int       # bytes
    total: int


def find_pullable(name: str) -> Pullable | None:
    """What `name` stands for: a model of the catalogue, hf:user/repo[:QUANT] or hf.co/user/repo[:QUANT]; else None.

    Raises PullError for a name that is like one of the hub's and is none.
    """
    found = catalogue.find(name) or catalogue.find(name.removesuffix(":latest"))
    if found is not None or names.is_hub_name(name):
        return found or names.parse(name)
    try:
        parsed = ModelName.parse(name)
    except RequestError:
        return None
    return names.parse(parsed.hub_name) if parsed.is_on_hub else None


def pulled_as(entry: Entry) -> Pullable | None:
    """What was pulled as `entry`; None if it is a file of the user's own, or has settings of its own."""
    found = catalogue.find(entry.name)
    if found is not None and entry.source in (found.name, str(found.path)):
        return found
    hub = next((name for name in (*reversed(entry.aliases), entry.source) if names.is_hub_name(name)), None)
    return None if hub is None or entry.settings is not None or entry.stored is not None else names.parse(hub)


def reload(models: ModelManager) -> None:
    """Look again which models there are, and how they are to run; those that run stay as they are."""
    found = {entry.name: entry for entry in find_entries(models.settings)}
    known = models.entries
    for name in [name for name, entry in known.items()
                 if name not in found and entry.loaded is None and entry.loading is None and entry.download is None]:
        del known[name]
    for name, entry in found.items():
        entry.keep_s = entry.idle_s(models.settings)
        old = known.setdefault(name, entry)
        if old.loaded is None and old.loading is None and old.download is None:
            known[name] = entry
        else:
            old.is_listed = entry.is_listed
    models.tell("*", "models_reload", None)


async def fetched(wanted: Pullable) -> AsyncGenerator[Arrived, None]:
    """How far the pull is, which goes on in a thread and ends when nobody asks any more. Raises PullError."""
    news = _News()
    work = asyncio.create_task(asyncio.to_thread(_pull, wanted, news))
    work.add_done_callback(lambda _: news.changed.set())
    try:
        while not work.done():
            await news.changed.wait()
            news.changed.clear()
            if news.total:
                yield news.arrived
        work.result()
        if news.total:
            news.done = news.total
            yield news.arrived
    finally:
        news.is_cancelled = True
        work.add_done_callback(lambda task: task.cancelled() or task.exception())     # nobody else looks at it


def _pull(wanted: Pullable, news: _News) -> Path:
    if isinstance(wanted, names.HubModel):
        return huggingface.pull(wanted, progress=news.start)
    return resolve.pull(wanted, news.start)


class _News:
    """How far a pull is, told from its thread to the event loop."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self.total = self.done = 0          # bytes
        self.is_cancelled = False
        self._loop = asyncio.get_running_loop()
        self._told_s = 0.0

    @property
    def arrived(self) -> Arrived:
        return Arrived(min(self.done, self.total), self.total)

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
