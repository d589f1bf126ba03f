"""The models that the server serves, from a name to an engine that runs."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.engine.messages import Progress, Ready
from ggpy.engine.process_client import ProcessClient
from ggpy.engine.recording import Recorder
from ggpy.errors import GgpyError, PullError
from ggpy.gguf import GGUFFile
from ggpy.hub import catalogue, names
from ggpy.hub.model_names import ModelName
from ggpy.hub.resolve import made_model, resolve_model
from ggpy.hub.store import ModelStore, StoredModel
from ggpy.loading import ModelOptions, load_core
from ggpy.server.model_pool.answer_memory import AnswerMemory
from ggpy.server.model_pool.slots import SlotBoard
from ggpy.server.settings import ServerSettings
from ggpy.text import Tokenizer
from ggpy.text.chat import ChatTemplate
from ggpy.text.model_text import ModelText
from ggpy.text.tool_calls import AnswerStyle, detect

State = Literal["unloaded", "downloading", "loading", "loaded", "sleeping", "failed"]


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
    shows_special: bool = False     # its answers have control tokens, too
    answers: AnswerMemory = field(default_factory=AnswerMemory)
    fingerprint: str = ""           # of its file
    recorder: Recorder | None = None        # notes what is answered

    @property
    def tokenizer(self) -> Tokenizer:
        return self.text.tokenizer

    @property
    def chat_template(self) -> ChatTemplate:
        return self.text.chat_template

    @cached_property
    def answer_style(self) -> AnswerStyle:
        """How the model writes reasoning and calls of tools. Finding that out takes some renderings."""
        return detect(self.chat_template)

    @cached_property
    def token_lengths(self) -> NDArray[np.int64]:
        """The bytes of each token's text, those of control tokens too. Finding that out takes 0.1 s."""
        tokenizer = self.tokenizer
        return np.array([len(tokenizer.token_bytes(token)) for token in range(tokenizer.n_vocab)], np.int64)

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
    is_listed: bool = True
    loads_on_startup: bool = False
    settings: ServerSettings | None = None      # of this model alone; None: the server's
    stored: StoredModel | None = None           # what its maker said of it, if it was made by /api/create or /api/copy
    is_foreign: bool = False                    # its maker is an Ollama on this machine
    state: State = "unloaded"
    progress: Progress | None = None
    error: GgpyError | None = None          # why it has failed
    loaded: LoadedModel | None = None
    last: LoadedModel | None = None         # what was loaded before: what is known of the model, and its slots
    metrics: str | None = None              # the last that a model told that sleeps
    keep_s: float | None = None             # without requests it is unloaded after so long; None: never
    n_users: int = 0                        # requests that use it, or wait for it
    last_used_s: float = field(default_factory=time.monotonic)
    loading: asyncio.Task[LoadedModel] | None = None
    download: asyncio.Task[None] | None = None

    def idle_s(self, settings: ServerSettings) -> float | None:
        """After how long without requests it goes by its own settings, or else the server's; None: never."""
        return (self.settings or settings).sleep_idle_s

    def size_bytes(self) -> int | None:
        """Of its file; None if that is not here."""
        if self.last is not None:
            return self.last.info.size_bytes
        path = Path(self.source)
        return path.stat().st_size if path.is_file() else None


def check_source(source: str, *, is_offline: bool) -> None:
    """Raise PullError for the name of no model, and GGUFError for a file that is none; what may be pulled is right."""
    path = known_file(source, is_offline=is_offline)
    if path is not None:
        info_of_file(GGUFFile(path))


def known_file(source: str, *, is_offline: bool) -> Path | None:
    """The file that `source` means; None: it may be pulled. Raises PullError for the name of no model."""
    if names.is_hub_name(source):
        names.parse(source)
    try:
        return resolve_model(source, offline=True)
    except PullError:
        made = made_model(source)
        spec = source if made is None else made.source
        if is_offline or not (names.is_hub_name(spec) or catalogue.find(spec) is not None):
            raise
        return None


def check_kept(entry: Entry) -> None:
    """Raise PullError for a model that was made here and is deleted now, by `ggpy rm` or another server."""
    stored = entry.stored
    if stored is not None and not entry.is_foreign and ModelStore().find(ModelName.parse(stored.name)) is None:
        raise PullError(f"model '{entry.name}' not found: {stored.name} was deleted")


async def open_model(entry: Entry, settings: ServerSettings) -> LoadedModel:
    """The model of `entry` in a process of its own, pulled if it is absent. Raises what that raises."""
    path = await asyncio.to_thread(resolve_model, entry.source, offline=settings.is_offline)
    gguf = await asyncio.to_thread(GGUFFile, path)
    fingerprint = await asyncio.to_thread(lambda file: file.fingerprint, gguf)
    if entry.last is not None and entry.last.fingerprint == fingerprint:
        text = entry.last.text      # making a large vocabulary anew takes a second, and memory grows by the gaps
    else:
        text = await asyncio.to_thread(ModelText, gguf.metadata, settings.chat_template)
    info = info_of_file(gguf)
    defaults = settings.sampling_of(gguf.metadata)
    del gguf            # what was read of the file need not stay mapped while the engine starts

    def show(progress: Progress) -> None:
        entry.progress = progress

    client = await ProcessClient.start(partial(load_core, str(path), options_for(info, settings)), show)
    return LoadedModel(entry.name, text, client, defaults, info, SlotBoard(settings.n_slots, settings.slot_similarity),
                       settings.options.shows_special, fingerprint=fingerprint)


async def share_model(entry: Entry, settings: ServerSettings, loaded: LoadedModel) -> LoadedModel:
    """The model of `entry` by the engine that runs already for the same file. Raises what its template raises."""
    metadata = (await asyncio.to_thread(GGUFFile, loaded.info.path)).metadata
    text = await asyncio.to_thread(ModelText, metadata, settings.chat_template)
    return replace(loaded, name=entry.name, text=text, defaults=settings.sampling_of(metadata), answers=AnswerMemory())


async def can_share(entry: Entry, settings: ServerSettings, loaded: LoadedModel, its: ServerSettings) -> bool:
    """Whether the engine of `loaded`, which runs by the settings `its`, is what `entry` wants: same file, same way."""
    if options_for(loaded.info, settings) != options_for(loaded.info, its) or settings.n_slots != its.n_slots:
        return False
    try:
        path = await asyncio.to_thread(resolve_model, entry.source, offline=True)
    except GgpyError:
        return False
    return path.resolve() == loaded.info.path.resolve()


def options_for(info: ModelInfo, settings: ServerSettings) -> ModelOptions:
    """How a model is to run: the context is divided among the slots, or belongs to whoever needs it.

    No request gets more of it than the model was trained for.
    """
    options, n_ctx = settings.options, settings.options.n_ctx
    if n_ctx is None:
        return replace(options, max_running=None if settings.is_unified else settings.n_slots)
    if settings.is_ctx_cut:
        n_ctx = min(n_ctx, info.n_ctx_train * (1 if settings.is_unified else settings.n_slots))
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
