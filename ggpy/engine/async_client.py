"""What a server asks of an engine, in one event loop, wherever the engine runs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Literal, Self, TypeVar

import msgspec
import numpy as np

from ggpy.arrays import Float32
from ggpy.backends.base import Scales
from ggpy.engine.adapters import AdapterInfo
from ggpy.engine.config import Pooling
from ggpy.engine.messages import (
    AdapterList,
    Answer,
    Array,
    Cancel,
    Command,
    ComputeLogits,
    Embed,
    EraseState,
    Generate,
    GetAdapters,
    GetMetrics,
    GetStatus,
    Progress,
    Ready,
    Reply,
    RestoreState,
    SavedTokens,
    SaveState,
    SetAdapters,
    Status,
    Tokens,
)
from ggpy.errors import EngineError, GgpyError, RequestError

Health = Literal["starting", "ready", "restarting", "failed", "closed"]
CloseMode = Literal["finish", "cancel"]

MAX_UNREAD = 4096       # events that a stream keeps for a reader that is slower than the engine

T = TypeVar("T")


class Stream:
    """The events of the answers to one Generate, on their way to whoever reads them."""

    def __init__(self, first_id: int, n: int) -> None:
        self.live = dict(zip(range(first_id, first_id + n), range(n), strict=True))     # requests that go on: index
        self._events: asyncio.Queue[Tokens] = asyncio.Queue()

    def put(self, event: Tokens) -> bool:
        """Keep `event`; False if the reader is too slow, which is then told so instead."""
        if event.finish_reason is not None:
            self.live.pop(event.request_id, None)
        self._events.put_nowait(event)
        if self._events.qsize() <= MAX_UNREAD:
            return True
        while not self._events.empty():
            self._events.get_nowait()
        self.fail(EngineError(f"{MAX_UNREAD:,} pieces of this answer wait for a reader that is too slow; it was ended"))
        return False

    def fail(self, error: GgpyError) -> None:
        """End all that goes on with `error`."""
        request_id, index = next(iter(self.live.items()), (0, 0))
        self.live.clear()
        self._events.put_nowait(Tokens.failure(request_id, index, error))

    async def get(self) -> Tokens | None:
        """The next event; None after the last."""
        if not self.live and self._events.empty():
            return None
        return await self._events.get()


class AsyncClient(ABC):
    """An engine, used from the event loop that it is made in.

    Every method raises EngineError when the engine is not there, and GgpyError as the engine itself does.
    """

    health: Health = "starting"

    def __init__(self, progress: Callable[[Progress], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._progress = progress
        self._ready: Ready | None = None
        self._next_id = 1
        self._streams: dict[int, Stream] = {}                   # of live requests
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_closing = False

    @property
    def model(self) -> Ready:
        """The sizes of the model. Raises EngineError before there is one."""
        if self._ready is None:
            raise EngineError("the model is not loaded yet; ask again later")
        return self._ready

    async def generate(self, job: Generate) -> AsyncGenerator[Tokens, None]:
        """The events of `job`'s answers as they come, until all have ended; `job.id` is of no account.

        Closing the generator, or cancelling the task that waits for it, cancels what is left. An answer that fails
        ends all with its error, and so does a reader that is slower than the engine by MAX_UNREAD events.
        """
        self._require_ready()
        if job.n < 1:
            raise RequestError(f"n={job.n}: expected one answer at least")
        job = msgspec.structs.replace(job, id=self._new_ids(job.n))
        stream = Stream(job.id, job.n)
        try:
            self._streams.update(dict.fromkeys(stream.live, stream))
            self._idle.clear()
            self._send(job)
            while (event := await stream.get()) is not None:
                if event.error is not None:
                    raise event.error.exception()
                yield event
        finally:
            self._drop(stream)

    async def logits(self, tokens: Sequence[int], n_outputs: int) -> Float32:
        """Logits (n_outputs, n_vocab) of the last `n_outputs` of `tokens`."""
        return (await self._call(lambda i: ComputeLogits(i, tokens, n_outputs), Array)).rows()

    async def embed(self, texts: Sequence[Sequence[int]], pooling: Pooling | None = None) -> list[Float32]:
        """The vectors of `texts` (their tokens), not normalised: (1, n_embd) each, (n_tokens, n_embd) for pooling
        "none", (1, n_classes) for "rank". None is the pooling of the model, or "mean" where it does not say."""
        self._require_ready()
        how = pooling or self.model.pooling or "mean"
        rows = (await self._call(lambda i: Embed(i, texts, how), Array)).rows()
        ends = np.cumsum([len(tokens) if how == "none" else 1 for tokens in texts])
        return np.split(rows, ends[:-1]) if len(texts) else []

    async def status(self) -> Status:
        """How busy the engine is, as it says itself: an engine that hangs does not answer."""
        return await self._call(GetStatus, Status)

    async def adapters(self) -> Sequence[AdapterInfo]:
        """The model's low-rank adapters, by number, with the scales that requests get which do not say."""
        return (await self._call(GetAdapters, AdapterList)).adapters

    async def set_adapters(self, scales: Scales) -> None:
        """Change these scales: adapters that are not in `scales` get 0. Raises RequestError if there is no such one."""
        await self._call(lambda i: SetAdapters(i, scales), AdapterList)

    async def metrics(self) -> str:
        """What the engine counts and times, in Prometheus's text format."""
        return await self._call(GetMetrics, str)

    async def save_state(self, path: str, tokens: Sequence[int], salt: int = 0, head: bytes = b"") -> SavedTokens:
        """Write the computed part of `tokens` to a file, behind `head`.

        Raises SavedStateError if there is none, or it cannot be.
        """
        return await self._call(lambda i: SaveState(i, path, tokens, salt, head), SavedTokens)

    async def restore_state(self, path: str, *, start: int = 0, salt: int | None = None) -> SavedTokens:
        """Have what is saved in a file, behind `start` bytes, computed, under `salt` or its own.

        Raises SavedStateError if it is damaged or does not belong here.
        """
        return await self._call(lambda i: RestoreState(i, path, start, salt), SavedTokens)

    async def erase_state(self, tokens: Sequence[int], salt: int = 0) -> None:
        """Forget what is computed of `tokens`, unless others need it too."""
        await self._call(lambda i: EraseState(i, tokens, salt), Status)

    @abstractmethod
    async def aclose(self, mode: CloseMode = "finish") -> None:
        """Let what is asked for come to its end, or end it with an error; then free the engine. May be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.aclose("finish" if kind is None else "cancel")

    @abstractmethod
    def _send(self, command: Command) -> None:
        """Pass `command` on to the engine, without waiting."""

    def _received(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            match answer:
                case Tokens():
                    self._deliver(answer)
                case Reply():
                    self._resolve(answer)
                case Ready():
                    self._ready, self.health = answer, "ready"
                case Progress() if self._progress is not None:
                    self._progress(answer)

    def _deliver(self, event: Tokens) -> None:
        stream = self._streams.get(event.request_id)
        if stream is None:          # cancelled, which the engine did not know yet
            return
        if event.finish_reason is not None:
            self._forget(event.request_id)
        live = list(stream.live)
        if not stream.put(event):
            self._cancel(live)

    def _resolve(self, reply: Reply) -> None:
        future = self._calls.get(reply.id)
        if future is None or future.done():
            return
        if reply.error is None:
            future.set_result(reply.value)
        else:
            future.set_exception(reply.error.exception())

    async def _call(self, command_of: Callable[[int], Command], kind: type[T]) -> T:
        """The engine's reply, which is of type `kind`, to the command that gets the id it is given."""
        self._require_ready()
        call_id = self._new_ids(1)
        future = self._calls[call_id] = self._loop.create_future()
        self._idle.clear()
        try:
            self._send(command_of(call_id))
            value = await future
        except asyncio.CancelledError:
            self._send(Cancel(call_id))
            raise
        finally:
            del self._calls[call_id]
            self._settle()
        assert isinstance(value, kind)
        return value

    def _drop(self, stream: Stream) -> None:
        """Nobody reads `stream` any more."""
        self._cancel(list(stream.live))
        stream.live.clear()

    def _cancel(self, request_ids: Sequence[int]) -> None:
        for request_id in request_ids:
            if request_id in self._streams:
                self._forget(request_id)
                self._send(Cancel(request_id))

    def _forget(self, request_id: int) -> None:
        del self._streams[request_id]
        self._settle()

    def _settle(self) -> None:
        if not self._streams and not self._calls:
            self._idle.set()

    def _fail_all(self, error: GgpyError) -> None:
        """End everything that was asked for with `error`."""
        for stream in {id(stream): stream for stream in self._streams.values()}.values():
            stream.fail(error)
        self._streams.clear()
        for future in self._calls.values():
            if not future.done():
                future.set_exception(error)
        self._settle()

    def _new_ids(self, n: int) -> int:
        """The first of `n` numbers in a row that nothing had before."""
        first = self._next_id
        self._next_id += n
        return first

    def _require_ready(self) -> None:
        if self._is_closing:
            raise EngineError("the engine is shutting down")
        if self.health != "ready":
            raise EngineError({"starting": "the model is not loaded yet; ask again later",
                               "restarting": "the engine starts again after it has failed; ask again later"}
                              .get(self.health, "the engine has failed and does not start again; see its log"))
