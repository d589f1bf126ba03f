"""What an engine in another process is asked, what it answers, and both as bytes.

One message of the transport is a byte with the version and a list of messages in msgpack: all that one step of the
engine brings travels together. Times are seconds; an absolute one is of `time.perf_counter`, which processes share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec
import numpy as np

from ggpy import errors
from ggpy.arrays import Float32
from ggpy.backends.base import Scales
from ggpy.engine.adapters import AdapterInfo
from ggpy.engine.config import Pooling, SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.kv_cache import Miss
from ggpy.engine.metrics import PageUse
from ggpy.engine.probabilities import ProbabilitySpec, TokenProbability
from ggpy.engine.request import ContextShift, Event, FinishReason
from ggpy.errors import EngineError, GgpyError

VERSION = 3             # of the messages below; any change of what is there makes it another one



class Message(msgspec.Struct, frozen=True, tag=True, omit_defaults=True, forbid_unknown_fields=True):
    """Base of all messages; the class's name tells them apart."""


class Generate(Message, frozen=True, kw_only=True):
    """Answer `prompt_tokens` `n` times. Requests `id` to `id + n - 1` get the answers; the client gives the id."""

    id: int = 0
    prompt_tokens: Sequence[int]
    params: SamplingParams = SamplingParams()
    n: int = 1
    constraint: ConstraintSpec | None = None    # what the answer must look like
    probabilities: ProbabilitySpec | None = None    # what to tell of each token
    priority: int = 0                           # higher is served first
    deadline_s: float | None = None             # how long it may take from now on; later it ends with an error
    salt: int = 0                               # prefixes are shared among requests of one salt
    adapters: Scales | None = None              # how much of each adapter; others get nothing. None: what is usual
    context_shift: ContextShift | None = None   # None: the answer ends where the context does
    tells_progress: bool = False                # Tokens without any tell how far the prompt is read
    keeps: tuple[tuple[int, float], ...] = ()   # so many tokens of the prompt are evicted last for so many seconds


class Cancel(Message, frozen=True):
    """End request or call `id`; nothing more is heard of it."""

    id: int


class ComputeLogits(Message, frozen=True):
    """Logits of the last `n_outputs` of `tokens`: the Reply has an Array (n_outputs, n_vocab)."""

    id: int
    tokens: Sequence[int]
    n_outputs: int


class Embed(Message, frozen=True):
    """The vectors of `texts` (their tokens), computed together: the Reply has an Array of all their rows in order.

    A text has one row, or one per token where `pooling` is "none".
    """

    id: int
    texts: Sequence[Sequence[int]]
    pooling: Pooling


class SaveState(Message, frozen=True):
    """Write the computed part of `tokens` to the file `path`; the Reply has a SavedTokens."""

    id: int
    path: str
    tokens: Sequence[int]
    salt: int = 0
    head: bytes = b""       # in front of it, for the client's own use


class RestoreState(Message, frozen=True):
    """Have what is saved in the file `path` computed; the Reply has a SavedTokens."""

    id: int
    path: str
    start: int = 0              # bytes of its head
    salt: int | None = None     # in place of the one that it was saved with


class EraseState(Message, frozen=True):
    """Forget what is computed of `tokens`, unless others need it too; the Reply has a Status."""

    id: int
    tokens: Sequence[int]
    salt: int = 0


class GetMetrics(Message, frozen=True):
    """The metrics in Prometheus's text format; the Reply has a string, also if the engine hangs."""

    id: int


class GetStatus(Message, frozen=True):
    """How busy the engine is; the Reply has a Status. It comes between two steps, so it also shows that they go on."""

    id: int


class GetAdapters(Message, frozen=True):
    """The model's adapters and their usual scales; the Reply has an AdapterList."""

    id: int


class SetAdapters(Message, frozen=True):
    """From now on requests that do not say get `scales`, and 0 of other adapters; the Reply has an AdapterList."""

    id: int
    scales: Scales


class Shutdown(Message, frozen=True):
    """End: what is not finished gets no answer, the client says so. The last message that the engine reads."""


Command = (Generate | Cancel | ComputeLogits | Embed | SaveState | RestoreState | EraseState
           | GetMetrics | GetStatus | GetAdapters | SetAdapters | Shutdown)


class Failure(msgspec.Struct, frozen=True):
    """An error of ggpy, by the name of its class."""

    kind: str
    text: str

    @classmethod
    def of(cls, error: GgpyError) -> Failure:
        return cls(type(error).__name__, str(error))

    def exception(self) -> GgpyError:
        """The error again; a plain GgpyError if errors.py has no such class."""
        found = getattr(errors, self.kind, None)
        return (found if isinstance(found, type) and issubclass(found, GgpyError) else GgpyError)(self.text)


class Array(Message, frozen=True):
    """Rows of float32."""

    shape: tuple[int, int]
    data: bytes

    @classmethod
    def of(cls, rows: Float32) -> Array:
        return cls((rows.shape[0], rows.shape[1]), np.ascontiguousarray(rows, np.float32).tobytes())

    def rows(self) -> Float32:
        """(shape), read-only. Raises EngineError if the data are not so many numbers."""
        n_rows, width = self.shape
        if min(self.shape) < 0 or len(self.data) != 4 * n_rows * width:
            raise EngineError(f"the engine's process sent {len(self.data):,} bytes for {n_rows:,} rows of {width:,} "
                              "numbers; was ggpy updated while it ran? Start it again")
        return np.frombuffer(self.data, np.float32).reshape(self.shape)


class Status(Message, frozen=True):
    """How busy an engine is."""

    n_running: int
    n_waiting: int
    pages: tuple[PageUse, ...] = ()     # of each group of layers


class SavedTokens(Message, frozen=True):
    """What the file of a saved state holds."""

    tokens: list[int]
    salt: int
    size_bytes: int


class AdapterList(Message, frozen=True):
    """The adapters of a model, by number."""

    adapters: tuple[AdapterInfo, ...]


class Progress(Message, frozen=True):
    """`done` of `of` parts of `stage` of the start are behind us; `name` is the last of them."""

    stage: Literal["loading", "compiling"]
    name: str = ""
    done: int = 0
    of: int = 0


class Ready(Message, frozen=True):
    """The model is there."""

    n_ctx: int          # tokens that one request may hold
    n_vocab: int
    n_embd: int
    max_running: int    # requests that a step serves
    is_encoder: bool = False            # it makes embeddings and does not generate
    pooling: Pooling | None = None      # that the model was made for, if it says so
    n_classes: int = 0                  # scores that it ranks by; 0: it does not rank
    max_batch_tokens: int = 0           # of a step; a text for an encoder may not be longer


class StartFailed(Message, frozen=True):
    """The model could not be opened; the process ends."""

    error: Failure


class Tokens(Message, frozen=True):
    """What a step brought to a request: an Event of the engine, of answer `index` of those asked for."""

    request_id: int
    index: int = 0
    tokens: tuple[int, ...] = ()
    text: str = ""                              # it may lag behind the tokens
    finish_reason: FinishReason | None = None   # set in the last one of an answer
    error: Failure | None = None                # why, if the finish reason is "error"
    num_cached: int = 0                         # tokens of the prompt that were not computed
    miss: Miss | None = None                    # in the last one: why it was no more of them
    time_s: float = 0.0
    probabilities: tuple[TokenProbability, ...] = ()    # of `tokens`, if they were asked for
    num_read: int | None = None                 # tokens of the prompt that are computed; None: it is all
    num_drafted: int = 0                        # tokens that were guessed so far
    num_accepted: int = 0                       # of these, tokens of the answer
    admitted_s: float | None = None             # when the request first ran, on the clock of `time_s`

    @classmethod
    def of(cls, event: Event, index: int = 0) -> Tokens:
        error = None if event.error is None else Failure.of(event.error)
        return cls(event.request_id, index, event.tokens, event.text, event.finish_reason, error, event.num_cached,
                   event.miss, event.time_s, event.probabilities, event.num_read, event.num_drafted, event.num_accepted,
                   event.admitted_s)

    @classmethod
    def failure(cls, request_id: int, index: int, error: GgpyError) -> Tokens:
        """The last event of a request that fails."""
        return cls(request_id, index, finish_reason="error", error=Failure.of(error))


class Reply(Message, frozen=True):
    """The answer to a call, or why there is none."""

    id: int
    value: Array | Status | SavedTokens | AdapterList | str | None = None
    error: Failure | None = None


Answer = Progress | Ready | StartFailed | Tokens | Reply

T = TypeVar("T")
_encoder = msgspec.msgpack.Encoder()
_commands = msgspec.msgpack.Decoder(list[Command])
_answers = msgspec.msgpack.Decoder(list[Answer])


def encode(messages: Sequence[Message]) -> bytes:
    """`messages` as they travel."""
    return bytes((VERSION,)) + _encoder.encode(messages)


def decode_commands(data: bytes) -> list[Command]:
    """What `encode` made of commands. Raises EngineError if `data` is anything else."""
    return _decode(data, _commands)


def decode_answers(data: bytes) -> list[Answer]:
    """What `encode` made of answers. Raises EngineError if `data` is anything else."""
    return _decode(data, _answers)


def _decode(data: bytes, decoder: msgspec.msgpack.Decoder[T]) -> T:
    if data[:1] != bytes((VERSION,)):
        found = f"version {data[0]}" if data else "nothing at all"
        raise EngineError(f"a message between ggpy's processes has {found}, expected version {VERSION}; was ggpy "
                          "updated while it ran? Start it again")
    try:
        return decoder.decode(memoryview(data)[1:])
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise EngineError(f"a message between ggpy's processes cannot be read ({error}); was ggpy updated while it "
                          "ran? Start it again") from error
