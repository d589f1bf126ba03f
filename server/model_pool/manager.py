"""Which models are loaded: on demand, within limits, and as long as somebody wants them."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import re
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from ggpy.engine.async_client import AsyncClient
from ggpy.engine.recording import Recorder
from ggpy.errors import GgpyError, RequestError
from ggpy.machine import available_memory_bytes, give_memory_back
from ggpy.server.errors import LoadingError, UnknownModelError
from ggpy.server.model_pool.model_lookup import meant_entry
from ggpy.server.model_pool.models import Entry, LoadedModel, State, can_share, check_kept, open_model, share_model
from ggpy.server.settings import ServerSettings

LOOK_S = 0.25           # how often it is looked for models that nobody uses
MEMORY_SHARE = 1.1      # of its file, that a model needs beside its context
MAX_NEWS = 1000         # that wait for a listener
MAKE_ROOM_S = 5.0        # a model that waits for room for so long gets that of one that others keep busy

logger = logging.getLogger("ggpy")


class ModelManager:
    """Loads models when they are needed. All methods are for the event loop's thread."""

    def __init__(self, settings: ServerSettings, entries: Sequence[Entry], *, is_single: bool) -> None:
        self.settings = settings
        self.is_single = is_single              # one model, whatever requests call it
        self.entries = {entry.name: entry for entry in entries}
        self._max_loaded = math.inf if is_single or not settings.models_max else settings.models_max
        self.recorder: Recorder | None = None   # of all models
        self._turn = asyncio.Lock()             # of whoever loads next: they come in order
        self._changed = asyncio.Event()         # a model became idle, or was unloaded
        self._held_up: asyncio.Event | None = None      # what requests wait for until there is room; None: they go on
        self._n_users: dict[AsyncClient, int] = {}      # requests that may still ask an engine for something
        self._free: dict[AsyncClient, asyncio.Event] = {}       # whether none does any more, for who waits for that
        self._listeners: set[asyncio.Queue[dict[str, Any]]] = set()
        for entry in entries:
            entry.keep_s = entry.idle_s(settings)

    @property
    def single(self) -> Entry:
        """The model that was given on the command line."""
        return next(iter(self.entries.values()))

    @property
    def is_starting(self) -> bool:
        """Whether the only model is loaded for the first time; later it sleeps and wakes, and requests wait."""
        return self.is_single and self.single.state == "loading" and self.single.last is None

    def find(self, name: str | None) -> Entry:
        """The model called `name`. Raises RequestError if there is no name, UnknownModelError if none goes by it."""
        if self.is_single:
            return self.single
        if not name:
            raise RequestError("model name is missing from the request")
        found = meant_entry(self.entries.values(), name)
        if found is None:
            raise UnknownModelError(name)
        return found

    def asked(self, name: str | None) -> Entry:
        """As `find`, but an unknown name is a RequestError, as in llama-server."""
        try:
            return self.find(name)
        except UnknownModelError as error:
            raise RequestError(str(error)) from error

    @asynccontextmanager
    async def use(self, name: str | None = None, *, autoload: bool | None = None) -> AsyncIterator[LoadedModel]:
        """The model called `name`, loaded now if it is not; it stays so while it is used.

        Raises RequestError for an unknown one and for one that is not to be loaded by requests, LoadingError for the
        only model while it loads at first, unless `autoload` has it waited for, and what loading raises.
        """
        entry = self.asked(name)
        if self.is_starting and not autoload:
            raise LoadingError("Loading model")
        may_load = self.is_single or (self.settings.autoload if autoload is None else autoload)
        if entry.loaded is None and not may_load:
            raise RequestError("model is not loaded")
        while entry.loaded is not None and self._held_up is not None:
            await self._held_up.wait()
        entry.n_users += 1
        try:
            model = await self._wanted(entry)
            with self._using(model.client):
                if self.settings.fake_delay_s and not self.is_single:
                    await asyncio.sleep(self.settings.fake_delay_s)
                yield model
        finally:
            entry.n_users -= 1
            entry.last_used_s = time.monotonic()
            self._changed.set()

    async def load(self, entry: Entry) -> LoadedModel:
        """Load the model of `entry` unless it is there.

        Raises what opening a model raises, and LoadingError if it is unloaded meanwhile.
        """
        if entry.loaded is not None:
            return entry.loaded
        if self.is_single and entry.error is not None:
            raise entry.error
        if entry.loading is None:
            entry.loading = asyncio.create_task(self._load(entry))
            entry.loading.add_done_callback(lambda _: self._settle(entry))      # also if it never began
        loading, task = entry.loading, asyncio.current_task()
        try:
            return await asyncio.shield(loading)
        except asyncio.CancelledError:
            if loading.cancelled() and task is not None and not task.cancelling():
                raise LoadingError(f"model '{entry.name}' was unloaded while it was being loaded") from None
            raise

    async def unload(self, entry: Entry, state: State = "unloaded") -> None:
        """Let what `entry` does come to its end, and free its memory."""
        if entry.loading is not None:
            entry.loading.cancel()
            with suppress(asyncio.CancelledError, GgpyError):
                await entry.loading
        loaded, entry.loaded = entry.loaded, None
        entry.keep_s = entry.idle_s(self.settings)      # what one request wanted counts no longer
        if loaded is not None:
            self._set_state(entry, state)
            if not any(other.loaded is not None and other.loaded.client is loaded.client
                       for other in self.entries.values()):
                if loaded.client in self._n_users:
                    await self._free.setdefault(loaded.client, asyncio.Event()).wait()
                await loaded.client.aclose()
                give_memory_back()      # now that its streams have ended
        self._changed.set()

    async def watch(self) -> None:
        """Unload models that nobody wants any more; the only model sleeps."""
        while True:
            await asyncio.sleep(LOOK_S)
            for entry in list(self.entries.values()):
                if entry.loaded is None or entry.keep_s is None or entry.n_users:
                    continue
                if time.monotonic() - entry.last_used_s > entry.keep_s:
                    with suppress(GgpyError):
                        entry.metrics = await entry.loaded.client.metrics()
                    if not entry.n_users:
                        await self.unload(entry, "sleeping" if self.is_single else "unloaded")

    async def metrics(self, entry: Entry) -> str:
        """The metrics of a model, the last ones if it sleeps; nothing is generated then."""
        if entry.loaded is None and entry.metrics is not None:
            last = entry.metrics
            entry.metrics = re.sub(r"(?m)^(llamacpp:\w+_tokens_seconds) .*", r"\1 0.0", last)
            return last
        return await (await self.load(entry)).client.metrics()

    @asynccontextmanager
    async def news(self) -> AsyncIterator[asyncio.Queue[dict[str, Any]]]:
        """A queue of what happens to models from now on; a listener that is too slow misses some."""
        queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue(MAX_NEWS)
        self._listeners.add(queue)
        try:
            yield queue
        finally:
            self._listeners.discard(queue)

    def tell(self, model: str, event: str, data: Any) -> None:
        """Let all listeners know."""
        for queue in self._listeners:
            with suppress(asyncio.QueueFull):
                queue.put_nowait({"model": model, "event": event, "data": data})

    async def aclose(self) -> None:
        """End all engines, and the recording."""
        entries = self.entries.values()
        for entry in entries:
            if entry.loading is not None:
                entry.loading.cancel()
        await asyncio.gather(*(entry.loading for entry in entries if entry.loading is not None), return_exceptions=True)
        clients = {id(entry.loaded.client): entry.loaded.client for entry in entries if entry.loaded is not None}
        await asyncio.gather(*(client.aclose("cancel") for client in clients.values()))
        if self.recorder is not None:
            self.recorder.close()

    @contextmanager
    def _using(self, client: AsyncClient) -> Iterator[None]:
        """Count a request among those that use an engine, which is not closed meanwhile."""
        self._n_users[client] = self._n_users.get(client, 0) + 1
        try:
            yield
        finally:
            self._n_users[client] -= 1
            if not self._n_users[client]:
                del self._n_users[client]
                if client in self._free:
                    self._free.pop(client).set()

    async def _wanted(self, entry: Entry) -> LoadedModel:
        """As `load`, but if nobody waits any more and it has no place yet it is not loaded."""
        try:
            return await self.load(entry)
        except asyncio.CancelledError:
            if entry.n_users == 1 and entry.loading is not None and entry.state != "loading":
                entry.loading.cancel()
            raise

    async def _load(self, entry: Entry) -> LoadedModel:
        try:
            async with self._turn:
                await asyncio.to_thread(check_kept, entry)
                shared = await self._shared(entry)
                if shared is None:
                    await self._make_room(entry)
                    self._set_state(entry, "loading")
                else:
                    entry.loaded = entry.last = shared
            entry.error = None
            if shared is None:
                entry.loaded = entry.last = await open_model(entry, entry.settings or self.settings)
                if self.is_single:
                    set_aside()
            assert entry.loaded is not None
            entry.loaded.recorder = self.recorder
            entry.last_used_s, entry.metrics = time.monotonic(), None
            self._set_state(entry, "loaded")
            return entry.loaded
        except asyncio.CancelledError:
            self._set_state(entry, "unloaded")
            raise
        except Exception as error:
            entry.error = error if isinstance(error, GgpyError) else None
            self._set_state(entry, "failed")
            raise

    def _settle(self, entry: Entry) -> None:
        """Loading has come to its end."""
        entry.loading = None
        self._changed.set()

    async def _shared(self, entry: Entry) -> LoadedModel | None:
        """The model of `entry` by another's engine, where one was made of the other; None if none runs that fits."""
        settings = entry.settings or self.settings
        for other in list(self.entries.values()):
            loaded = other.loaded
            if loaded is None or (entry.stored is None and other.stored is None):
                continue
            if await can_share(entry, settings, loaded, other.settings or self.settings):
                shared = await share_model(entry, settings, loaded)
                if other.loaded is loaded:      # it has not gone meanwhile
                    return shared
        return None

    async def _make_room(self, entry: Entry) -> None:
        """Wait until `entry` may be loaded; models that nobody uses go, the one that was not used for longest first.

        If all are busy for a while, requests to them are held up until the first has nothing more to do, and goes.
        """
        start_s = time.monotonic()
        try:
            while not self._has_room(entry):
                loaded = [other for other in self.entries.values() if other.loaded is not None]
                idle = [other for other in loaded if not other.n_users]
                if idle:
                    await self.unload(min(idle, key=lambda other: other.last_used_s))
                    continue
                if not loaded and not any(other.state == "loading" for other in self.entries.values()):
                    return          # it is up to the model whether it fits
                left_s = max(0.0, start_s + MAKE_ROOM_S - time.monotonic())
                if left_s == 0 and self._held_up is None:
                    self._held_up = asyncio.Event()
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(left_s or None):
                        await self._changed.wait()
        finally:
            held_up, self._held_up = self._held_up, None
            if held_up is not None:
                held_up.set()

    def _has_room(self, entry: Entry) -> bool:
        if self.is_single:
            return True
        entries = self.entries.values()
        n_loaded = len({id(other.loaded.client) for other in entries if other.loaded is not None}) \
            + sum(other.loaded is None and other.state == "loading" for other in entries)
        if n_loaded >= self._max_loaded:
            return False
        available, size = available_memory_bytes(), entry.size_bytes()
        return n_loaded == 0 or available is None or size is None or size * MEMORY_SHARE < available

    def _set_state(self, entry: Entry, state: State) -> None:
        if entry.state != state:
            entry.state = state
            self.tell(entry.name, "model_status", {"status": state})
            logger.info("%s is %s", entry.name, state)


def set_aside() -> None:
    """Have the garbage collector look no more through what is there now, but once when this is called again.

    A vocabulary that stays is not to stall all streams for 100 ms now and then. Where models swap, going through them
    here would do so more often than the collector itself.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
