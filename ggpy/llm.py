"""The library: a model in this process, that continues text, answers messages and gives logits."""

from __future__ import annotations

import logging
import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ggpy.backends.base import KV_BYTES, PAGE_TOKENS, Backend, Compute, KVType, Repack
from ggpy.engine.client import CompletionStream, EngineClient
from ggpy.engine.completion import Completion, Timings
from ggpy.engine.config import EngineConfig, SamplingParams
from ggpy.engine.core import EngineCore
from ggpy.engine.kv import pages_for
from ggpy.engine.request import Request
from ggpy.engine.runner import Float32
from ggpy.errors import ConfigError, RequestError
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.machine import available_memory_bytes, usable_cores
from ggpy.models import HParams, Model, build_model, hparams_of
from ggpy.text import ChatTemplate, Tokenizer

__all__ = ["LLM", "Completion", "CompletionStream", "Timings"]

Message = Mapping[str, Any]
Tokens = Sequence[SupportsIndex] | NDArray[np.integer[Any]]
Progress = Callable[[str, int, int], None]      # kernel just compiled, how many are done, of how many

DEFAULT_N_CTX = 4096
MAX_RUNNING = 64        # requests of one step; logits are kept for so many rows

logger = logging.getLogger("ggpy")


class LLM:
    """A model, loaded.

    `model` is a path to a GGUF file or a name of the catalogue, pulled if it is absent. `n_ctx` is how many tokens a
    prompt and its answer may have together (None: the model's, at most 4096 and no more than memory allows).
    `pool_tokens` is how many there is room for, of all requests together (None: `n_ctx`); where it is short, requests
    take turns. `compute` "f32" and `kv_type` "f32" are exact and slow. `repack` "off" reads weights where the file has
    them, "auto" does so where memory is short. `progress` is told of every kernel that had to be compiled.

    Several threads may use one LLM; requests that are live at the same time share the model's steps. Raises ConfigError
    for settings, GGUFError, UnsupportedModelError and TokenizerError for files, PullError for names that cannot work,
    OutOfMemoryError if the model does not fit and KernelError if this machine cannot compile or run its kernels.
    """

    def __init__(self, model: str | os.PathLike[str], *, n_ctx: int | None = None, pool_tokens: int | None = None,
                 n_threads: int | None = None, compute: Compute = "int8", kv_type: KVType = "f16",
                 repack: Repack = "auto", max_batch_tokens: int = 512, progress: Progress | None = None) -> None:
        for name, value, choices in (("compute", compute, ("int8", "f32")), ("kv_type", kv_type, ("f16", "f32")),
                                     ("repack", repack, ("auto", "on", "off"))):
            if value not in choices:
                raise ConfigError(f"{name}={value!r}: expected one of {', '.join(choices)}")
        n_ctx = None if n_ctx is None else whole_number("n_ctx", n_ctx, 2)
        pool_tokens = None if pool_tokens is None else whole_number("pool_tokens", pool_tokens, n_ctx or 2)
        n_threads = usable_cores() if n_threads is None else whole_number("n_threads", n_threads, 1)
        max_batch_tokens = whole_number("max_batch_tokens", max_batch_tokens, 1)
        self.path = resolve(model)
        gguf = GGUFFile(self.path)
        self.metadata = gguf.metadata
        self.tokenizer = Tokenizer.from_metadata(gguf.metadata)
        if n_ctx is None:
            n_ctx = default_n_ctx(hparams_of(gguf), KV_BYTES[kv_type])
            n_ctx = n_ctx if pool_tokens is None else min(n_ctx, pool_tokens)
        self.n_ctx = n_ctx
        config = EngineConfig(n_ctx=n_ctx, max_batch_tokens=max_batch_tokens, max_running=MAX_RUNNING)
        backend = open_backend(
            gguf, build_model(gguf, n_ctx), n_threads=n_threads, n_pages=pages_for(pool_tokens or n_ctx),
            max_tokens=max_batch_tokens, max_outputs=min(max_batch_tokens, MAX_RUNNING), compute=compute,
            kv_type=kv_type, repack=repack, progress=progress)
        self.n_vocab, self.n_embd = backend.n_vocab, backend.n_embd
        self._client = EngineClient(EngineCore(backend, self.tokenizer, config))
        self._template: ChatTemplate | None = None

    @property
    def has_chat_template(self) -> bool:
        """Whether the file has a chat template; without one, messages are written as ChatML."""
        return "tokenizer.chat_template" in self.metadata

    def tokenize(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Token ids of `text`. `add_special` adds BOS and the like where the model wants them; `parse_special` reads
        the spelling of control tokens, such as "<|im_end|>", as these. Raises RequestError for what is no text."""
        if not isinstance(text, str):
            raise RequestError(f"text={text!r:.80}: expected a text")
        return self.tokenizer.encode(text, add_special=add_special, parse_special=parse_special)

    def detokenize(self, ids: Tokens) -> str:
        """The text of `ids`, control tokens spelled. Raises TokenizerError for an id that the model does not have."""
        return self.tokenizer.decode(token_ids("ids", ids))

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

        Where memory is short, streams give way meanwhile. Raises RequestError for `ids` that are none of the model's,
        PromptTooLongError if they do not fit the context.
        """
        if positions not in ("all", "last"):
            raise ConfigError(f"positions={positions!r}: expected all or last")
        tokens = token_ids("ids", ids)
        return self._client.logits(tokens, len(tokens) if positions == "all" else 1)

    def embed(self, texts: Sequence[str], *, pooling: Literal["mean", "last"] = "mean",
              normalize: bool = True) -> Float32:
        """Vectors float32 (n_texts, n_embd) of `texts`: their hidden states' mean, or the last one.

        `normalize` gives them length 1. A model made for embeddings says which pooling it wants; others were not
        trained for it, and the mean is the usual choice. Where memory is short, streams give way meanwhile. Raises
        RequestError for what is not a sequence of texts or has a text without tokens, PromptTooLongError if a text
        does not fit the context.
        """
        if pooling not in ("mean", "last"):
            raise ConfigError(f"pooling={pooling!r}: expected mean or last")
        if isinstance(texts, str):      # a sequence of letters
            raise RequestError(f"texts={texts!r:.80}: expected a list of texts; give one text as [text]")
        texts = list(texts)
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise RequestError(f"texts[{i}]={text!r:.80}: expected a text")
        vectors = np.empty((len(texts), self.n_embd), np.float32)
        for vector, text in zip(vectors, texts, strict=True):
            tokens = self.tokenize(text)
            vector[:] = self._client.hidden(tokens, len(tokens) if pooling == "mean" else 1).mean(axis=0)
        if normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
        return vectors

    def generate(self, prompt: str | Tokens, params: SamplingParams | None = None) -> Completion:
        """Continue `prompt`: token ids, or a text in which control tokens may be spelled.

        Raises RequestError for a prompt that the model cannot read, PromptTooLongError if it leaves no room for an
        answer.
        """
        return self.stream(prompt, params).finish()

    def stream(self, prompt: str | Tokens, params: SamplingParams | None = None) -> CompletionStream:
        """As `generate`, but the text piece by piece."""
        if params is not None and not isinstance(params, SamplingParams):
            raise RequestError(f"params={params!r:.80}: expected a SamplingParams")
        ids = self.tokenize(prompt, parse_special=True) if isinstance(prompt, str) else token_ids("prompt", prompt)
        return self._client.submit(Request(ids, params or SamplingParams()))

    def chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> Completion:
        """The answer to `messages`, mappings with a "role" and a "content"."""
        return self.stream_chat(messages, params).finish()

    def stream_chat(self, messages: Sequence[Message], params: SamplingParams | None = None) -> CompletionStream:
        """As `chat`, but the text piece by piece."""
        return self.stream(self.chat_tokens(messages), params)

    def close(self) -> None:
        """Free the model's memory and threads, once the step that runs has ended; streams end with an error."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


def resolve(model: str | os.PathLike[str]) -> Path:
    """The file that `model` means: a path, or a name of the catalogue, which is pulled if it is absent."""
    spec = os.fspath(model) if isinstance(model, str | os.PathLike) else model
    if not isinstance(spec, str):
        raise ConfigError(f"model={model!r:.80}: expected a path to a GGUF file or a name")
    return resolve_model(spec)


def open_backend(gguf: GGUFFile, model: Model, **options: Any) -> Backend:
    """The backend that runs `model` on this machine."""
    from ggpy.backends.cpu import CpuBackend

    return CpuBackend(gguf, model.graph, **options)


def default_n_ctx(hparams: HParams, kv_item_bytes: int) -> int:
    """The model's context, cut to DEFAULT_N_CTX tokens and to half of the available memory."""
    kv_bytes = hparams.kv_width * kv_item_bytes
    n_ctx = min(hparams.n_ctx_train, DEFAULT_N_CTX)
    available = available_memory_bytes()
    if available is not None:
        n_ctx = min(n_ctx, max(PAGE_TOKENS, available // 2 // max(1, kv_bytes)))
    logger.info("the context is %s tokens (the model was trained for %s): %.0f MB of keys and values",
                f"{n_ctx:,}", f"{hparams.n_ctx_train:,}", n_ctx * kv_bytes / 1e6)
    return n_ctx


def whole_number(name: str, value: SupportsIndex, least: int) -> int:
    """`value` as a plain int. Raises ConfigError if it is none, or less than `least`."""
    number = as_int(value)
    if number is None or number < least:
        raise ConfigError(f"{name}={value!r:.80}: expected a whole number of at least {least}")
    return number


def token_ids(name: str, ids: Tokens) -> list[int]:
    """`ids` as plain ints. Raises RequestError for what is not a sequence of whole numbers."""
    is_text = isinstance(ids, str | bytes | bytearray)      # bytes are a sequence of numbers too
    try:
        items = None if is_text else list(ids)
    except TypeError:
        items = None
    if items is None:
        raise RequestError(f"{name}={ids!r:.80}: expected a sequence of token ids")
    tokens = []
    for i, item in enumerate(items):
        token = as_int(item)
        if token is None:
            raise RequestError(f"{name}[{i}]={item!r:.80}: expected a token id, a whole number")
        tokens.append(token)
    return tokens


def as_int(value: Any) -> int | None:
    """A whole number of any type, NumPy's too, as a plain int; None for anything else, such as 2.0 or "2"."""
    try:
        return operator.index(value)
    except TypeError:
        return None
