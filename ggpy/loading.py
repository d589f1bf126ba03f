"""Opens a model: the one way for the library, which runs it in its own process, and for an engine in another one."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, get_args

from ggpy.arguments import check_choice, whole_number
from ggpy.backends.base import PAGE_TOKENS, Adapter, Backend, Compute, KVType, Repack, kv_bytes
from ggpy.engine.adapters import AdapterInfo, Adapters, is_scale
from ggpy.engine.config import DEFAULT_STEP_MS, EngineConfig, Pooling
from ggpy.engine.core import EngineCore
from ggpy.engine.embeddings import MAX_TEXTS_OF_STEP
from ggpy.engine.pages import pages_for, pool_pages
from ggpy.engine.speculation import SpeculationConfig, Speculator
from ggpy.engine.speculation.draft_model import DraftModel, check_vocabularies
from ggpy.errors import ConfigError, GGUFError, shown
from ggpy.gguf import GGUFFile
from ggpy.machine import available_memory_bytes, usable_cores
from ggpy.models import HParams, Model, build_model, hparams_of
from ggpy.text import Tokenizer

Path = str | os.PathLike[str]
Lora = Path | tuple[Path, float]                # an adapter's file, and how much of it requests get: 1
Progress = Callable[[str, int, int], None]      # kernel just compiled, how many are done, of how many

USUAL_N_CTX = 4096      # of an encoder, whose work memory grows with it, and of forecasts
DEFAULT_BATCH_TOKENS = 512
MAX_RUNNING = 64        # requests of one step, at most; logits are kept for so many rows
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)       # in the order of llama.cpp's numbers

logger = logging.getLogger("ggpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """How a model is to run; `LLM` says what each option means. Raises ConfigError if one is invalid."""

    n_ctx: int | None = None
    pool_tokens: int | None = None
    n_threads: int | None = None
    compute: Compute = "int8"
    cache_type_k: KVType = "f16"
    cache_type_v: KVType = "f16"
    repack: Repack = "auto"
    max_running: int | None = None
    max_batch_tokens: int | None = None     # None: DEFAULT_BATCH_TOKENS, or the whole context of an encoder
    step_ms: float = DEFAULT_STEP_MS
    cache_audit: int = 0
    shows_special: bool = False             # control tokens in texts of answers
    speculation: SpeculationConfig = field(default_factory=SpeculationConfig)
    draft_model: str | os.PathLike[str] | None = None       # a file
    lora: Lora | Sequence[Lora] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.speculation, SpeculationConfig):
            raise ConfigError(f"speculation={shown(self.speculation)}: expected a SpeculationConfig")
        object.__setattr__(self, "lora", adapter_files(self.lora))
        for name, choices in (("compute", Compute), ("cache_type_k", KVType), ("cache_type_v", KVType),
                              ("repack", Repack)):
            check_choice(name, getattr(self, name), get_args(choices))
        for name in ("n_ctx", "pool_tokens", "n_threads", "max_batch_tokens", "max_running", "cache_audit"):
            value = getattr(self, name)
            if value is not None:
                least = {"n_ctx": 2, "pool_tokens": self.n_ctx or 2, "cache_audit": 0}.get(name, 1)
                object.__setattr__(self, name, whole_number(name, value, least))


def load_core(path: str | os.PathLike[str], options: ModelOptions, progress: Progress | None = None) -> EngineCore:
    """The engine of the model in the file `path`. Raises what `LLM` does; `progress` is told of compiled kernels."""
    gguf = GGUFFile(path)
    with compilers_awake():
        return open_core(gguf, Tokenizer.from_metadata(gguf.metadata), options, progress)


def open_core(gguf: GGUFFile, tokenizer: Tokenizer, options: ModelOptions,
              progress: Progress | None = None) -> EngineCore:
    """As `load_core`, of an open file and its tokenizer."""
    draft_gguf = open_draft_file(options, tokenizer)
    hparams = hparams_of(gguf)
    if not hparams.causal:
        return open_encoder(gguf, tokenizer, options, progress)
    n_ctx = options.n_ctx
    if n_ctx is None:
        n_ctx = default_n_ctx(hparams, options.cache_type_k, options.cache_type_v)
        n_ctx = n_ctx if options.pool_tokens is None else min(n_ctx, options.pool_tokens)
    else:
        warn_beyond_training(n_ctx, hparams)
    pool_tokens = options.pool_tokens or n_ctx
    max_batch_tokens = min(options.max_batch_tokens or DEFAULT_BATCH_TOKENS, pool_tokens)      # a step has no more
    config = EngineConfig(n_ctx=n_ctx, n_ctx_train=hparams.n_ctx_train, max_batch_tokens=max_batch_tokens,
                          max_running=min(options.max_running or MAX_RUNNING, MAX_RUNNING), step_ms=options.step_ms,
                          cache_audit=options.cache_audit, shows_special=options.shows_special,
                          synthetic_rates=options.speculation.synthetic_rates, pooling=pooling_of(gguf))
    sizes = {"max_tokens": max_batch_tokens, "max_outputs": min(max_batch_tokens, MAX_RUNNING),
             **backend_options(options, progress)}
    adapters, infos = open_adapters(gguf, n_ctx, options)
    backend = open_with_pool(gguf, n_ctx, pool_tokens, adapters=adapters, **sizes)
    if not options.speculation.proposers:
        return EngineCore(backend, tokenizer, config, adapters=infos)
    draft_model = None
    if draft_gguf is not None:      # beyond its own context it will not guess
        draft_n_ctx = min(n_ctx, hparams_of(draft_gguf).n_ctx_train)
        draft_model = DraftModel(open_with_pool(draft_gguf, draft_n_ctx, pool_tokens, **sizes), tokenizer.n_vocab,
                                 options.speculation.p_min)
    return EngineCore(backend, tokenizer, config, Speculator(
        options.speculation, n_vocab=backend.n_vocab, n_ctx=n_ctx, max_rows=backend.max_outputs,
        draft_model=draft_model), infos)


def trained_n_ctx(gguf: GGUFFile) -> int:
    """Tokens of the longest context that the model knows."""
    return hparams_of(gguf).n_ctx_train


def warn_beyond_training(n_ctx: int, hparams: HParams) -> None:
    """Log a warning where a context is longer than those that the model knows."""
    if n_ctx > hparams.n_ctx_train:
        logger.warning("the context is %s tokens, but the model was trained for %s: what it says beyond these may "
                       "make no sense", f"{n_ctx:,}", f"{hparams.n_ctx_train:,}")


def open_encoder(gguf: GGUFFile, tokenizer: Tokenizer, options: ModelOptions,
                 progress: Progress | None = None) -> EngineCore:
    """As `open_core`, of a model that computes each text whole, in one step, and keeps nothing of it."""
    hparams = hparams_of(gguf)
    n_ctx = min(options.n_ctx or USUAL_N_CTX, hparams.n_ctx_train)
    if options.n_ctx is not None and n_ctx < options.n_ctx:
        logger.warning("the context is %s tokens, not %s: the model was made for no more", f"{n_ctx:,}",
                       f"{options.n_ctx:,}")
    max_batch_tokens = options.max_batch_tokens or n_ctx
    config = EngineConfig(n_ctx=n_ctx, n_ctx_train=hparams.n_ctx_train, max_batch_tokens=max_batch_tokens,
                          max_running=MAX_RUNNING, pooling=pooling_of(gguf))
    n_pages = pages_for(max(n_ctx, max_batch_tokens)) + MAX_TEXTS_OF_STEP       # each may leave most of one unused
    adapters, infos = open_adapters(gguf, n_ctx, options)
    backend = open_backend(gguf, build_model(gguf, n_ctx), n_pages=n_pages, table_pages=pages_for(n_ctx),
                           max_tokens=max_batch_tokens, max_outputs=max_batch_tokens, adapters=adapters,
                           **backend_options(options, progress))
    return EngineCore(backend, tokenizer, config, adapters=infos)


def backend_options(options: ModelOptions, progress: Progress | None) -> dict[str, Any]:
    """What a backend is told beside the sizes of steps and pools."""
    return {"n_threads": options.n_threads or usable_cores(), "compute": options.compute,
            "cache_type_k": options.cache_type_k, "cache_type_v": options.cache_type_v, "repack": options.repack,
            "progress": progress}


def pooling_of(gguf: GGUFFile) -> Pooling | None:
    """How the model wants the hidden states of a text to become its vector; None if it does not say.

    Raises GGUFError if what it says is nothing that there is.
    """
    key = f"{gguf.metadata.get_str('general.architecture')}.pooling_type"
    value = gguf.metadata.get(key, -1)
    if not isinstance(value, int) or not -1 <= value < len(POOLINGS):
        raise GGUFError(f"{gguf.path}: key {key}: found {shown(value)}, expected one of "
                        f"{', '.join(f'{i} ({name})' for i, name in enumerate(POOLINGS))}")
    return None if value == -1 else POOLINGS[value]


def open_draft_file(options: ModelOptions, tokenizer: Tokenizer) -> GGUFFile | None:
    """The draft model's file, if there is one to be asked. Raises ConfigError if its tokens are not `tokenizer`'s."""
    if options.draft_model is None or "draft" not in options.speculation.proposers:
        return None
    gguf = GGUFFile(options.draft_model)
    check_vocabularies(tokenizer, Tokenizer.from_metadata(gguf.metadata))
    return gguf


def adapter_files(lora: Lora | Sequence[Lora]) -> tuple[tuple[str, float], ...]:
    """The files and scales that `lora` names: one adapter or several. Raises ConfigError if it is anything else."""
    several = isinstance(lora, Sequence) and not isinstance(lora, str) and not _has_scale(lora)
    items: Sequence[Any] = lora if several else [lora]      # type: ignore[assignment]
    files = []
    for each in items:
        path, scale = each if _has_scale(each) else (each, 1.0)
        if not isinstance(path, str | os.PathLike):
            raise ConfigError(f"lora={shown(each)}: expected a path to a GGUF file, or one with a scale")
        files.append((str(os.fspath(path)), float(scale)))
    return tuple(files)


def _has_scale(lora: Any) -> bool:
    """Whether it is a pair of anything and a scale."""
    return isinstance(lora, tuple) and len(lora) == 2 and is_scale(lora[1])


def open_adapters(gguf: GGUFFile, n_ctx: int, options: ModelOptions) -> tuple[list[Adapter], Adapters]:
    """The low-rank adapters that `options` asks for, as backends and as the engine want them.

    Raises GGUFError or UnsupportedModelError for a file that does not fit the model.
    """
    files = adapter_files(options.lora)
    if not files:
        return [], Adapters()
    from ggpy.models.adapters import read_adapter

    model = build_model(gguf, n_ctx)
    adapters = [read_adapter(path, model) for path, _ in files]
    return adapters, Adapters([
        AdapterInfo(path, scale, adapter.task_name, adapter.prompt_prefix, adapter.fingerprint)
        for (path, scale), adapter in zip(files, adapters, strict=True)])


def open_with_pool(gguf: GGUFFile, n_ctx: int, pool_tokens: int, **options: Any) -> Backend:
    """The backend of a model with room for `pool_tokens` tokens of requests that have `n_ctx` of them at most."""
    model = build_model(gguf, n_ctx)
    n_pages = pool_pages(model.kv_groups, pool_tokens, options["max_tokens"])
    return open_backend(gguf, model, n_pages=n_pages, table_pages=pages_for(n_ctx), **options)


def open_backend(gguf: GGUFFile, model: Model, **options: Any) -> Backend:
    """The backend that runs `model` on this machine."""
    from ggpy.backends.cpu import CpuBackend

    return CpuBackend(gguf, model.graph, **options)


def compilers_awake() -> AbstractContextManager[None]:
    """Within it, what compiles the backend's kernels gets ready, if need be, before it is known what to compile."""
    from ggpy.backends import cpu

    return cpu.compilers_awake()


def default_n_ctx(hparams: HParams, cache_type_k: KVType, cache_type_v: KVType) -> int:
    """The model's context, cut to what half of the available memory holds; pages take memory when they are used."""
    token_bytes = kv_bytes(hparams.k_width, cache_type_k) + kv_bytes(hparams.v_width, cache_type_v)
    n_ctx = hparams.n_ctx_train
    available = available_memory_bytes()
    if available is not None:
        n_ctx = min(n_ctx, max(PAGE_TOKENS, available // 2 // max(1, token_bytes)))
    logger.info("the context is %s tokens (the model was trained for %s): up to %.0f MB of keys and values",
                f"{n_ctx:,}", f"{hparams.n_ctx_train:,}", n_ctx * token_bytes / 1e6)
    return n_ctx
