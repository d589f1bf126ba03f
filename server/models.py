"""The models that the server serves, from a name to an engine that runs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal

from ggpy.engine.config import SamplingParams
from ggpy.engine.messages import Progress, Ready
from ggpy.engine.process_client import ProcessClient
from ggpy.errors import GgpyError
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions, load_core
from ggpy.server.errors import LoadingError, NotFoundError
from ggpy.server.settings import ServerSettings
from ggpy.server.slots import SlotBoard
from ggpy.text import Tokenizer
from ggpy.text.chat import ChatTemplate
from ggpy.text.model_text import ModelText

State = Literal["unloaded", "loading", "loaded", "sleeping", "failed"]

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is told of a model."""

    path: Path
    size_bytes: int         # of its tensors
    n_params: int
    n_ctx_train: int
    file_type: str          # such as "Q4_K"
    architecture: str


@dataclass(eq=False)
class LoadedModel:
    """A model whose engine runs, and what turns requests into tokens and back."""

    name: str
    text: ModelText
    client: ProcessClient
    defaults: SamplingParams        # of requests that do not say
    info: ModelInfo
    slots: SlotBoard

    @property
    def tokenizer(self) -> Tokenizer:
        return self.text.tokenizer

    @property
    def chat_template(self) -> ChatTemplate:
        return self.text.chat_template

    @property
    def ready(self) -> Ready:
        """The sizes that the engine tells."""
        return self.client.model

    @property
    def n_ctx(self) -> int:
        """Tokens that one request may hold."""
        return self.client.model.n_ctx


@dataclass(eq=False)
class Entry:
    """A model that the server knows by name."""

    name: str                       # what the API calls it
    source: str                     # file, or name of a model that can be pulled
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    state: State = "unloaded"
    progress: Progress | None = None
    error: GgpyError | None = None          # why it has failed
    loaded: LoadedModel | None = None
    n_users: int = 0                        # requests that use it
    last_used_s: float = field(default_factory=time.monotonic)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)        # of whoever loads or unloads it


class ModelManager:
    """Loads models when they are needed. All methods are for the event loop's thread."""

    def __init__(self, settings: ServerSettings, entries: Sequence[Entry], *, is_single: bool) -> None:
        self.settings = settings
        self.is_single = is_single              # one model, whatever requests call it
        self.entries = {entry.name: entry for entry in entries}

    @property
    def single(self) -> Entry:
        """The model that was given on the command line."""
        return next(iter(self.entries.values()))

    def find(self, name: str | None) -> Entry:
        """The model called `name`, by name or alias. Raises NotFoundError."""
        if self.is_single:
            return self.single
        if not name:
            raise NotFoundError("model name is missing from the request")
        for entry in self.entries.values():
            if name == entry.name or name in entry.aliases:
                return entry
        raise NotFoundError(f"model '{name}' not found")

    @asynccontextmanager
    async def use(self, name: str | None = None) -> AsyncIterator[LoadedModel]:
        """The model called `name`, loaded now if it is not; it stays so while it is used.

        Raises NotFoundError, LoadingError for the only model while it loads, and what loading raises.
        """
        entry = self.find(name)
        if self.is_single and entry.state == "loading":
            raise LoadingError("Loading model")
        entry.n_users += 1
        try:
            yield await self.load(entry)
        finally:
            entry.n_users -= 1
            entry.last_used_s = time.monotonic()

    async def load(self, entry: Entry) -> LoadedModel:
        """Load the model of `entry` unless it is there. Raises what opening a model raises."""
        async with entry.lock:
            if entry.loaded is not None:
                return entry.loaded
            if self.is_single and entry.error is not None:
                raise entry.error
            entry.state, entry.error = "loading", None
            try:
                entry.loaded = await self._open(entry)
            except BaseException as error:
                entry.state = "failed"
                entry.error = error if isinstance(error, GgpyError) else None
                raise
            entry.state = "loaded"
            return entry.loaded

    async def unload(self, entry: Entry, state: State = "unloaded") -> None:
        """Let what `entry` does come to its end, and free its memory."""
        async with entry.lock:
            loaded, entry.loaded = entry.loaded, None
            entry.state = state
            if loaded is not None:
                await loaded.client.aclose()

    async def aclose(self) -> None:
        """End all engines."""
        clients = [entry.loaded.client for entry in self.entries.values() if entry.loaded is not None]
        await asyncio.gather(*(client.aclose("cancel") for client in clients))

    async def _open(self, entry: Entry) -> LoadedModel:
        settings = self.settings
        path = await asyncio.to_thread(resolve_model, entry.source, offline=settings.is_offline)
        gguf = await asyncio.to_thread(GGUFFile, path)
        text = await asyncio.to_thread(ModelText, gguf.metadata, settings.chat_template)
        info = info_of_file(gguf)
        defaults = settings.sampling_of(gguf.metadata)
        options = options_for(info, settings)

        def show(progress: Progress) -> None:
            entry.progress = progress

        client = await ProcessClient.start(partial(load_core, str(path), options), show)
        return LoadedModel(entry.name, text, client, defaults, info, SlotBoard(settings.n_slots))


def options_for(info: ModelInfo, settings: ServerSettings) -> ModelOptions:
    """How a model is to run: the context is divided among the slots, or belongs to whoever needs it.

    No request gets more of it than the model was trained for.
    """
    options = settings.options
    n_ctx = options.n_ctx
    if n_ctx is None:
        return replace(options, max_running=None if settings.is_unified else settings.n_slots)
    if settings.is_unified:
        return replace(options, n_ctx=min(n_ctx, info.n_ctx_train), pool_tokens=options.pool_tokens or n_ctx)
    return replace(options, n_ctx=max(2, min(n_ctx // settings.n_slots, info.n_ctx_train)),
                   pool_tokens=options.pool_tokens or n_ctx, max_running=settings.n_slots)


def info_of_file(gguf: GGUFFile) -> ModelInfo:
    """What is told of the model in a file. Raises GGUFError."""
    tensors = list(gguf.tensors.values())
    sizes: dict[str, int] = {}
    n_params = 0
    for tensor in tensors:
        sizes[tensor.type.name] = sizes.get(tensor.type.name, 0) + tensor.size_bytes
        n_params += tensor.n_elements
    most = max(sizes, key=sizes.__getitem__) if sizes else ""
    architecture = gguf.metadata.get_str("general.architecture", "")
    n_ctx_train = gguf.metadata.get_int(f"{architecture}.context_length")
    return ModelInfo(gguf.path, sum(sizes.values()), n_params, n_ctx_train, most, architecture)
