"""Sizes and constants of a model, read from GGUF metadata and checked before anything is built from them.

Each architecture reads the keys that llama.cpp reads for it and no others: files carry keys that nobody honours.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import numpy as np

from ggpy.errors import GGUFError, UnsupportedModelError
from ggpy.gguf import GGUFFile, StringArray
from ggpy.gguf.types import shown

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 20          # values in a row of hidden states
MAX_HEADS = 1 << 12
MAX_HEAD_DIM = 1 << 12
MAX_EXPERTS = 1 << 12
MAX_CONTEXT = (1 << 31) - 1

NormKind = Literal["rms", "layer"]
RopePairing = Literal["interleaved", "neox"]
RopeScaling = Literal["none", "linear", "yarn", "longrope"]


class Keys:
    """Metadata keys of one architecture: `integer("block_count")` reads `llama.block_count` and checks it.

    A key without a default must be there. Every method raises GGUFError with the key, what was found and what was
    expected.
    """

    def __init__(self, gguf: GGUFFile, arch: str) -> None:
        self.gguf, self.arch = gguf, arch

    def _get(self, key: str) -> Any:
        return self.gguf.metadata.get(f"{self.arch}.{key}")

    def error(self, key: str, expected: str) -> GGUFError:
        found = f"found {shown(str(self._get(key)))}" if self.has(key) else "it is missing"
        return GGUFError(f"{self.gguf.path}: key {shown(f'{self.arch}.{key}')}: {found}, expected {expected}")

    def has(self, key: str) -> bool:
        return f"{self.arch}.{key}" in self.gguf.metadata

    def refuse(self, key: str, what: str) -> None:
        """Raises UnsupportedModelError if the key is set: the file relies on something that ggpy does not have."""
        value = self._get(key)
        if any(self.gguf.metadata.get_list(f"{self.arch}.{key}")) if self.is_list(key) else value:
            raise UnsupportedModelError(f"{self.gguf.path}: key {self.arch}.{key} asks for {what}, expected a model "
                                        "without")

    def is_list(self, key: str) -> bool:
        return isinstance(self._get(key), np.ndarray | list)

    def n_items(self, key: str, default: int) -> int:
        """How many items a list of strings has."""
        value = self._get(key) if self.has(key) else None
        if value is None:
            return default
        if not isinstance(value, StringArray | list) or not len(value):
            raise self.error(key, "a list of names")
        return len(value)

    def integer(self, key: str, default: int | None = None, *, low: int = 1, high: int) -> int:
        value = self._get(key) if self.has(key) else default
        if not _is_integer(value, low, high):
            raise self.error(key, f"an integer from {low:,} to {high:,}")
        return value

    def number(self, key: str, default: float | None = None, *, low: float, high: float) -> float:
        value = self._get(key) if self.has(key) else default
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:   # nan too
            raise self.error(key, f"a number from {low:g} to {high:g}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key) if self.has(key) else default
        if not isinstance(value, bool):
            raise self.error(key, "true or false")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._get(key) if self.has(key) else default
        if not isinstance(value, str):
            raise self.error(key, "a string")
        return value

    def per_layer(self, key: str, n_layer: int, default: int | None = None, *, low: int = 1,
                  high: int) -> tuple[int, ...]:
        """One integer for all layers, or a list with one for each."""
        if not self.is_list(key):
            return (self.integer(key, default, low=low, high=high),) * n_layer
        values = self.gguf.metadata.get_list(f"{self.arch}.{key}")
        if len(values) != n_layer or not all(_is_integer(value, low, high) for value in values):
            raise self.error(key, f"an integer from {low:,} to {high:,}, or a list of {n_layer} of them")
        return tuple(values)


def _is_integer(value: Any, low: int, high: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeHParams:
    """How positions turn queries and keys; `ggpy.models.rope` makes tables of it."""

    pairing: RopePairing             # which dims of a head turn together
    n_rot: int                       # dims of a head that turn
    freq_base: float
    freq_base_window: float          # of sliding-window layers
    scaling: RopeScaling
    factor: float                    # context extension of linear and yarn
    n_ctx_original: int              # context before extension (yarn, longrope, attention temperature)
    attn_factor: float
    beta_fast: float                 # yarn: dims that turn more often than this within n_ctx_original are left alone
    beta_slow: float                 # yarn: dims that turn less often are interpolated in full
    log_multiplier: float            # yarn: mscale_all_dim; 0: not set


@dataclass(frozen=True, slots=True, kw_only=True)
class HParams:
    """What a forward pass is built from. Tuples have one entry per layer."""

    arch: str
    n_layer: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int
    n_head: tuple[int, ...]
    n_head_kv: tuple[int, ...]
    head_dim_k: int
    head_dim_v: int
    n_ff: tuple[int, ...]            # 0: no dense feed-forward network
    norm: NormKind
    norm_eps: float
    rope: RopeHParams
    window: tuple[int | None, ...]   # positions a row of the layer sees, itself included; None: all
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0             # rows of one expert's ffn_up
    n_ff_shared: int = 0             # rows of the shared expert's ffn_up; 0: none
    n_layer_dense_lead: int = 0      # layers before the first mixture of experts
    expert_weights_scale: float = 1.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    attention_scale: float           # of q.k
    attention_softcap: float | None = None
    final_softcap: float | None = None
    temperature_scale: float = 0.0   # queries grow by this per e-fold of position / n_ctx_original
    parallel_residual: bool = False  # attention and feed-forward read the same input
    causal: bool = True              # False: tokens see those after them, so a text is computed whole
    alibi: tuple[float, ...] = ()    # per head, what scores lose with each position of distance; none: nothing
    n_classes: int = 1               # scores of a classifier, if there is one on top

    def __post_init__(self) -> None:
        for layer, (n_head, n_head_kv) in enumerate(zip(self.n_head, self.n_head_kv, strict=True)):
            if n_head % n_head_kv:
                raise UnsupportedModelError(
                    f"{self.arch}.attention.head_count_kv: layer {layer} has {n_head_kv} key/value heads for {n_head} "
                    "query heads; expected a divisor of the query heads")
        if self.n_expert and not 1 <= self.n_expert_used <= self.n_expert:
            raise UnsupportedModelError(
                f"{self.arch}.expert_used_count is {self.n_expert_used}; expected 1 to {self.n_expert} "
                f"({self.arch}.expert_count)")

    @property
    def k_width(self) -> int:
        """How many numbers a position keeps as keys, all layers together."""
        return sum(self.n_head_kv) * self.head_dim_k

    @property
    def v_width(self) -> int:
        """How many numbers a position keeps as values, all layers together."""
        return sum(self.n_head_kv) * self.head_dim_v


def read_hparams(keys: Keys, *, pairing: RopePairing, norm: NormKind = "rms", needs_experts: bool = False,
                 window_period: int | None = None, default_window: int = 0,
                 default_freq_base_window: float | None = None) -> HParams:
    """The keys that all architectures share.

    `window_period` says that the architecture has sliding-window layers, all but every `window_period`-th, if the file
    has a window or there is a `default_window`. Their rope base is that of full layers, or the default given here.
    """
    n_layer = keys.integer("block_count", high=MAX_LAYERS)
    n_embd = keys.integer("embedding_length", high=MAX_WIDTH)
    n_head = keys.per_layer("attention.head_count", n_layer, high=MAX_HEADS)
    head_dim_k = _head_dim(keys, "attention.key_length", n_embd, n_head[0])
    n_ff = keys.per_layer("feed_forward_length", n_layer, 0, low=0, high=MAX_WIDTH)
    n_expert = keys.integer("expert_count", 0, low=int(needs_experts), high=MAX_EXPERTS)
    eps_key = "attention.layer_norm_rms_epsilon" if norm == "rms" else "attention.layer_norm_epsilon"
    return HParams(
        arch=keys.arch, n_layer=n_layer, n_embd=n_embd, n_vocab=_n_vocab(keys.gguf),
        n_ctx_train=keys.integer("context_length", high=MAX_CONTEXT),
        n_head=n_head,
        n_head_kv=(keys.per_layer("attention.head_count_kv", n_layer, high=MAX_HEADS)
                   if keys.has("attention.head_count_kv") else n_head),
        head_dim_k=head_dim_k,
        head_dim_v=_head_dim(keys, "attention.value_length", n_embd, n_head[0]),
        n_ff=n_ff, norm=norm, norm_eps=keys.number(eps_key, low=0, high=1),
        rope=_read_rope(keys, head_dim_k, pairing, default_freq_base_window),
        window=_read_window(keys, n_layer, window_period, default_window),
        n_expert=n_expert,
        n_expert_used=keys.integer("expert_used_count", 0, low=0, high=MAX_EXPERTS),
        n_ff_expert=keys.integer("expert_feed_forward_length", 0, low=0, high=MAX_WIDTH),
        attention_scale=1 / math.sqrt(head_dim_k),
        n_classes=keys.n_items("classifier.output_labels", 1))


def _n_vocab(gguf: GGUFFile) -> int:
    """Rows of the embedding; a tokenizer may name fewer tokens (padding), never more."""
    tensor = gguf.tensors.get("token_embd.weight")
    if tensor is None or len(tensor.shape) != 2:
        found = "is missing" if tensor is None else f"has shape {tensor.shape}"
        raise GGUFError(f"{gguf.path}: tensor 'token_embd.weight' {found}; expected (n_vocab, n_embd)")
    n_vocab = tensor.shape[0]
    tokens = gguf.metadata.get("tokenizer.ggml.tokens")
    if isinstance(tokens, StringArray) and len(tokens) > n_vocab:
        raise GGUFError(f"{gguf.path}: the tokenizer has {len(tokens):,} tokens but 'token_embd.weight' has only "
                        f"{n_vocab:,} rows; expected a row for each token")
    return n_vocab


def _head_dim(keys: Keys, key: str, n_embd: int, n_head: int) -> int:
    if not keys.has(key) and n_embd % n_head:
        raise keys.error(key, f"a head size, since embedding_length {n_embd} does not divide into {n_head} heads")
    return keys.integer(key, n_embd // n_head, high=MAX_HEAD_DIM)


def _read_rope(keys: Keys, head_dim: int, pairing: RopePairing, default_base_window: float | None) -> RopeHParams:
    n_rot = keys.integer("rope.dimension_count", head_dim, low=0, high=head_dim)
    if n_rot % 2:
        raise keys.error("rope.dimension_count", f"an even number of at most {head_dim}, the size of a head")
    scaling = keys.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise UnsupportedModelError(f"{keys.gguf.path}: {keys.arch}.rope.scaling.type is {scaling!r}; "
                                    "expected none, linear, yarn or longrope")
    old_factor = keys.number("rope.scale_linear", 0.0, low=0, high=1e6)
    freq_base = keys.number("rope.freq_base", 10_000.0, low=1.001, high=1e15)
    return RopeHParams(
        pairing=pairing, n_rot=n_rot, freq_base=freq_base,
        freq_base_window=keys.number("rope.freq_base_swa", default_base_window or freq_base, low=1.001, high=1e15),
        scaling=scaling,                                                    # type: ignore[arg-type]
        factor=(keys.number("rope.scaling.factor", old_factor, low=0, high=1e6) or 1.0),
        n_ctx_original=(keys.integer("rope.scaling.original_context_length", 0, low=0, high=MAX_CONTEXT)
                        or keys.integer("context_length", high=MAX_CONTEXT)),
        attn_factor=keys.number("rope.scaling.attn_factor", 1.0, low=1e-6, high=1e6),
        beta_fast=32.0, beta_slow=1.0, log_multiplier=0.0)


def _read_window(keys: Keys, n_layer: int, period: int | None, default: int) -> tuple[int | None, ...]:
    """The window of each layer, from attention.sliding_window and attention.sliding_window_pattern."""
    window = keys.integer("attention.sliding_window", default, low=0, high=MAX_CONTEXT) if period else 0
    if not window or period is None:
        return (None,) * n_layer
    pattern = "attention.sliding_window_pattern"
    if keys.is_list(pattern):
        slides = keys.gguf.metadata.get_list(f"{keys.arch}.{pattern}")
        if len(slides) != n_layer:
            raise keys.error(pattern, f"a list of {n_layer} flags, one for each layer")
        return tuple(window if s else None for s in slides)
    period = keys.integer(pattern, period, low=0, high=MAX_LAYERS)
    return tuple(None if period and i % period == period - 1 else window for i in range(n_layer))
