"""The library: a model in this process, that continues text, answers messages and gives logits."""

from __future__ import annotations

import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import KV_BYTES, PAGE_TOKENS, Backend, Compute, KVType, Repack
from ggpy.engine.config import EngineConfig, SamplingParams
from ggpy.engine.core import EngineCore
from ggpy.engine.fair_lock import FairLock
from ggpy.engine.kv import pages_for
from ggpy.engine.request import Event, FinishReason, Request
from ggpy.engine.runner import Float32
from ggpy.errors import ConfigError, GgpyError
from ggpy.gguf import GGUFFile
from ggpy.graph.ops import Attention
from ggpy.machine import available_memory_bytes, usable_cores
from ggpy.models import Model, build_model
from ggpy.text import ChatTemplate, Tokenizer

Message = Mapping[str, Any]
Tokens = Sequence[int] | NDArray[np.integer[Any]]
Progress = Callable[[str, int, int], None]      # kernel just compiled, how many are done, of how many

DEFAULT_N_CTX = 4096
MAX_RUNNING = 64        # requests of one step; logits are kept for so many rows

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True)
class Timings:
    """How long a completion took, waiting for other requests included."""

    n_prompt: int
    n_generated: int
    prompt_s: float             # from the request to the first token
    generation_s: float         # from the first token to the last

    @property
    def prompt_tokens_per_s(self) -> float:
        return self.n_prompt / max(self.prompt_s, 1e-9)

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens a second; the first one belongs to the prompt."""
        return (self.n_generated - 1) / max(self.generation_s, 1e-9)


@dataclass(frozen=True, slots=True)
class Completion:
    """An answer."""

    text: str
    tokens: list[int]           # with the token that ended the answer, which has no text
    finish_reason: FinishReason
    n_prompt: int               # tokens of the prompt
    n_cached: int               # of these, tokens that an earlier request had read already
    timings: Timings


class LLM:
    """A model, loaded.

    `model` is a path to a GGUF file or a name of the catalogue, pulled if it is absent. `n_ctx` is how many tokens a
    prompt and its answer may have together (None: the model's, at most 4096 and no more than memory allows). `compute`
    "f32" and `kv_type` "f32" are exact and slow. `repack` "off" reads weights where the file has them. `progress` is
    told of every kernel that had to be compiled.

    Several threads may use one LLM; requests that are live at the same time share the model's steps. Raises ConfigError
    for settings, GGUFError and UnsupportedModelError for files, PullError for names that cannot work.
    """

    def __init__(self, model: str | os.PathLike[str], *, n_ctx: int | None = None, n_threads: int | None = None,
                 compute: Compute = "int8", kv_type: KVType = "f16", repack: Repack = "auto",
                 max_batch_tokens: int = 512, progress: Progress | None = None) -> None:
        for name, value, choices in (("compute", compute, ("int8", "f32")), ("kv_type", kv_type, ("f16", "f32")),
                                     ("repack", repack, ("auto", "on", "off"))):
            if value not in choices:
                raise ConfigError(f"{name}={value!r}: expected one of {', '.join(choices)}")
        self.path = resolve(model)
        gguf = GGUFFile(self.path)
        self.metadata = gguf.metadata
        self.tokenizer = Tokenizer.from_metadata(gguf.metadata)
        self.n_ctx = n_ctx if n_ctx is not None else default_n_ctx(build_model(gguf), KV_BYTES[kv_type])
        config = EngineConfig(n_ctx=self.n_ctx, max_batch_tokens=max_batch_tokens, max_running=MAX_RUNNING)
        backend = open_backend(
            gguf, build_model(gguf, self.n_ctx), n_threads=usable_cores() if n_threads is None else n_threads,
            n_pages=pages_for(self.n_ctx), max_tokens=max_batch_tokens,
            max_outputs=min(max_batch_tokens, MAX_RUNNING), compute=compute, kv_type=kv_type, repack=repack,
            progress=progress)
        self.n_vocab, self.n_embd = backend.n_vocab, backend.n_embd
        self._core: EngineCore | None = EngineCore(backend, self.tokenizer, config)
        # also when the LLM is dropped or Python exits: the backend's threads must not outlive its memory
        self._close_backend = weakref.finalize(self, backend.close)
        self._template: ChatTemplate | None = None
        self._lock = FairLock()
        self._inboxes: dict[int, deque[Event]] = {}
        self._dropped: deque[int] = deque()         # requests that nobody waits for any more
        self._process = os.getpid()

    @property
    def has_chat_template(self) -> bool:
        """Whether the file has a chat template; without one, messages are written as ChatML."""
        return "tokenizer.chat_template" in self.metadata

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`. `add_special` adds BOS and the like where the model wants them; `parse_special` reads
        the spelling of control tokens, such as "<|im_end|>", as these."""
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Tokens) -> str:
        """The text of `ids`, control tokens spelled."""
        return self.tokenizer.decode(map(int, ids))

    def chat_tokens(self, messages: Sequence[Message]) -> list[int]:
        """`messages` in the model's chat template, open for the assistant's answer, as token ids."""
        if self._template is None:
            self._template = ChatTemplate.from_metadata(self.metadata, self.tokenizer)
        ids = self.tokenizer.encode(self._template.render(messages), add_special=False, parse_special=True)
        bos = self.tokenizer.bos_id
        # templates may write BOS themselves
        return [bos, *ids] if bos is not None and self.tokenizer.add_bos and ids[:1] != [bos] else ids

    def logits(self, ids: Tokens, positions: Literal["all", "last"] = "last") -> Float32:
        """What the model expects after `ids`: float32 (n_positions, n_vocab), a row for each position or the last.

        Raises PromptTooLongError if `ids` do not fit the context.
        """
        if positions not in ("all", "last"):
            raise ConfigError(f"positions={positions!r}: expected all or last")
        tokens = list(map(int, ids))
        with self._engine() as core:
            return core.logits(tokens, len(tokens) if positions == "all" else 1)

    def embed(self, texts: Sequence[str], *, pooling: Literal["mean", "last"] = "mean",
              normalize: bool = True) -> Float32:
        """Vectors float32 (n_texts, n_embd) of `texts`: their hidden states' mean, or the last one.

        `normalize` gives them length 1. A model made for embeddings says which pooling it wants; others were not
        trained for it, and the mean is the usual choice. Raises PromptTooLongError if a text does not fit the context.
        """
        if pooling not in ("mean", "last"):
            raise ConfigError(f"pooling={pooling!r}: expected mean or last")
        vectors = np.empty((len(texts), self.n_embd), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            tokens = self.tokenize(text)
            with self._engine() as core:
                hidden = core.hidden(tokens, len(tokens) if pooling == "mean" else 1)
            vector[:] = hidden.mean(axis=0)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors

    def generate(self, prompt: str | Tokens, params: SamplingParams | None = None) -> Completion:
        """Continue `prompt`: token ids, or a text in which control tokens may be spelled.

        Raises PromptTooLongError if it leaves no room for an answer.
        """
        return self.stream(prompt, params).finish()

    def stream(self, prompt: str | Tokens, params: SamplingParams | None = None) -> CompletionStream:
        """As `generate`, but the text piece by piece."""
        ids = self.tokenize(prompt, parse_special=True) if isinstance(prompt, str) else list(map(int, prompt))
        request = Request(ids, params or SamplingParams())
        with self._engine() as core:
            core.add(request)
            self._inboxes[request.id] = deque()
        return CompletionStream(self, request)

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Completion:
        """The answer to `messages`, mappings with a "role" and a "content"."""
        return self.stream_chat(messages, params).finish()

    def stream_chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> CompletionStream:
        """As `chat`, but the text piece by piece."""
        return self.stream(self.chat_tokens(messages), params)

    def close(self) -> None:
        """Free the model's memory and threads; streams end with an error."""
        with self._lock:
            self._core = None
            self._close_backend()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()

    @contextmanager
    def _engine(self) -> Iterator[EngineCore]:
        """The engine, for this thread alone; requests that were dropped meanwhile are cancelled first."""
        if os.getpid() != self._process:
            raise GgpyError("this LLM belongs to the process that this one was forked from; load another one here")
        with self._lock:
            if self._core is None:
                raise GgpyError("this LLM is closed; load another one")
            while self._dropped:
                request_id = self._dropped.popleft()
                self._core.cancel(request_id)
                self._inboxes.pop(request_id, None)
            yield self._core

    def _wait(self, request: Request) -> Event:
        """The next event of `request`: whoever waits runs steps, for others too."""
        inbox = self._inboxes[request.id]
        while not inbox:
            with self._engine() as core:
                if request.finish_reason == "cancelled":        # closed meanwhile, as by a signal handler
                    return Event(request.id, (), "", "cancelled")
                for event in core.step() if not inbox else ():
                    self._inboxes[event.request_id].append(event)
        return inbox.popleft()


class CompletionStream(Iterator[str]):
    """The pieces of an answer's text, as they come; `completion` is there when the last one is.

    Closing it, or dropping it, cancels what is left of the answer.
    """

    def __init__(self, llm: LLM, request: Request) -> None:
        self._llm = llm
        self._request = request
        self._pieces: list[str] = []
        self._ended = False

    def __next__(self) -> str:
        while not self._ended:
            event = self._llm._wait(self._request)
            if event.finish_reason is not None:
                self.close()
            if self._request.error is not None:
                raise self._request.error
            if event.text:
                self._pieces.append(event.text)
                return event.text
        raise StopIteration

    def finish(self) -> Completion:
        """Wait for the rest; returns the whole answer."""
        for _ in self:
            pass
        return self.completion

    def close(self) -> None:
        """Generate no more."""
        if not self._ended:
            self._ended = True
            self._llm._dropped.append(self._request.id)

    def __del__(self) -> None:
        self.close()

    @property
    def completion(self) -> Completion:
        """The answer as far as it came; its finish reason is "cancelled" if it was closed early."""
        r = self._request
        first = r.first_token_s or r.added_s
        last = r.last_token_s or first
        n_prompt = len(r.prompt_tokens)
        return Completion("".join(self._pieces), r.output_tokens, r.finish_reason or "cancelled", n_prompt,
                          r.num_cached or 0, Timings(n_prompt, r.num_generated, first - r.added_s, last - first))


def resolve(model: str | os.PathLike[str]) -> Path:
    """The file that `model` means: a path, or a name of the catalogue, which is pulled if it is absent."""
    # imported only now, since tools are built on this module
    from ggpy.tools.pull import resolve_model

    return resolve_model(os.fspath(model))


def open_backend(gguf: GGUFFile, model: Model, **options: Any) -> Backend:
    """The backend that runs `model` on this machine."""
    from ggpy.backends.cpu import CpuBackend

    return CpuBackend(gguf, model.graph, **options)


def default_n_ctx(model: Model, kv_item_bytes: int) -> int:
    """The model's context, cut to DEFAULT_N_CTX tokens and to half of the available memory."""
    attentions = [op for op in model.graph.nodes if isinstance(op, Attention)]
    kv_bytes = sum(op.n_head_kv * (op.head_dim_k + op.head_dim_v) for op in attentions) * kv_item_bytes
    n_ctx = min(model.hparams.n_ctx_train, DEFAULT_N_CTX)
    available = available_memory_bytes()
    if available is not None:
        n_ctx = min(n_ctx, max(PAGE_TOKENS, available // 2 // max(1, kv_bytes)))
    logger.info("the context is %s tokens (the model was trained for %s): %.0f MB of keys and values",
                f"{n_ctx:,}", f"{model.hparams.n_ctx_train:,}", n_ctx * kv_bytes / 1e6)
    return n_ctx
