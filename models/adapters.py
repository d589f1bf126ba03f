"""Reads an adapter's file, for the model that it belongs to."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ggpy.errors import GGUFError, UnsupportedModelError
from ggpy.formats import FORMATS, dequantize
from ggpy.gguf import GGUFFile, TensorInfo
from ggpy.graph.adapters import Adapter, LowRank
from ggpy.graph.ops import Embed, Linear
from ggpy.models import Model
from ggpy.models.weights import whole_of

A, B = ".lora_a", ".lora_b"
ACTIVATED = "adapter.alora.invocation_tokens"

logger = logging.getLogger("ggpy")


def read_adapter(path: str | os.PathLike[str], model: Model) -> Adapter:
    """The adapter in the GGUF file `path`.

    Raises GGUFError if it is no adapter, or not one of this model: of another architecture, for matrices that the model
    does not have, or of other shapes; UnsupportedModelError for adapters of experts, and for activated ones.
    """
    gguf = GGUFFile(path)
    _check_kind(gguf, model.arch)
    alpha = gguf.metadata.get_float("adapter.lora.alpha", 0.0)
    linear: dict[str, LowRank] = {}
    embedding = None
    for name, a, b in _pairs(gguf):
        used = [op for op in model.graph.nodes if isinstance(op, Linear) and whole_of(op.weight)[0] == name]
        embeds = [op for op in model.graph.nodes if isinstance(op, Embed) and op.weight.name == name]
        if embeds:      # A and B change places there; a tied output has no part in it
            embedding = _embedding(gguf, name, embeds[0], a, b, alpha)
        elif used:
            linear.update(_linear(gguf, name, used, a, b, alpha))
        else:
            _refuse(gguf, name, model)
    return Adapter(gguf.path, gguf.fingerprint, linear, embedding,
                   gguf.metadata.get_str("adapter.lora.task_name", ""),
                   gguf.metadata.get_str("adapter.lora.prompt_prefix", ""))


def _check_kind(gguf: GGUFFile, arch: str) -> None:
    for key, expected, hint in (
            ("general.type", "adapter", "is this a model?"), ("adapter.type", "lora", "no other kind is known"),
            ("general.architecture", arch, "does the adapter belong to another model?")):
        found = gguf.metadata.get_str(key, "")
        if found != expected:
            raise GGUFError(f"{gguf.path}: key {key}: found {found!r:.80}, expected {expected!r}; {hint}")
    if ACTIVATED in gguf.metadata:
        raise UnsupportedModelError(f"{gguf.path}: key {ACTIVATED}: this adapter is activated by tokens of the prompt, "
                                    "which ggpy does not do; expected one that always applies")


def _pairs(gguf: GGUFFile) -> Iterator[tuple[str, TensorInfo, TensorInfo]]:
    """The names of matrices with both factors."""
    for name, tensor in gguf.tensors.items():
        matrix = name.removesuffix(A).removesuffix(B)
        if name == matrix:
            if not name.endswith("_norm.weight"):
                raise GGUFError(f"{gguf.path}: tensor {name!r}: expected a name that ends in {A} or {B}")
            logger.warning("%s: tensor %r is left out: adapters of norms have no effect", gguf.path, name)
            continue
        other = gguf.tensors.get(matrix + (B if name.endswith(A) else A))
        if other is None:
            raise GGUFError(f"{gguf.path}: tensor {name!r}: its other factor, {matrix}{B if name.endswith(A) else A}, "
                            "is missing; is the file complete?")
        if name.endswith(A):
            yield matrix, tensor, other


def _linear(gguf: GGUFFile, name: str, used: list[Linear], a: TensorInfo, b: TensorInfo,
            alpha: float) -> dict[str, LowRank]:
    """The terms of the linears that use the matrix `name`, whole or a part of its rows each."""
    n_in = used[0].weight.shape[-1]
    n_out = max(whole_of(op.weight)[1] + op.width for op in used)
    rank = a.shape[0]
    _check_shape(gguf, name, A, a, (rank, n_in))
    _check_shape(gguf, name, B, b, (n_out, rank))
    factors_a, factors_b = _floats(gguf, a), _floats(gguf, b) * np.float32(alpha / rank if alpha else 1.0)
    parts = ((op, whole_of(op.weight)[1]) for op in used)
    return {op.weight.name: LowRank(factors_a, factors_b[start : start + op.width]) for op, start in parts}


def _embedding(gguf: GGUFFile, name: str, op: Embed, a: TensorInfo, b: TensorInfo, alpha: float) -> LowRank:
    n_rows, width = op.weight.shape
    rank = a.shape[-1]
    _check_shape(gguf, name, A, a, (n_rows, rank))
    _check_shape(gguf, name, B, b, (width, rank))
    return LowRank(np.ascontiguousarray(_floats(gguf, a).T),
                   _floats(gguf, b) * np.float32((alpha / rank if alpha else 1.0) * op.scale))


def _check_shape(gguf: GGUFFile, name: str, suffix: str, tensor: TensorInfo, expected: tuple[int, int]) -> None:
    if tensor.shape != expected:
        raise GGUFError(f"{gguf.path}: tensor {name + suffix!r}: found shape {tensor.shape}, expected {expected}; does "
                        "the adapter belong to another model?")


def _floats(gguf: GGUFFile, tensor: TensorInfo) -> npt.NDArray[np.float32]:
    if tensor.type not in FORMATS:
        raise UnsupportedModelError(f"{gguf.path}: tensor {tensor.name!r} has type {tensor.type.name}, expected one of "
                                    f"{' '.join(sorted(t.name for t in FORMATS))}")
    return dequantize(tensor.rows(), tensor.type).reshape(tensor.shape)


def _refuse(gguf: GGUFFile, name: str, model: Model) -> None:
    """Raise an error about a matrix that takes no adapter."""
    used = {weight.name for op in model.graph.nodes if isinstance(weight := getattr(op, "weight", None), TensorInfo)}
    if name in used:
        raise UnsupportedModelError(f"{gguf.path}: tensor {name!r}: ggpy has no adapters of experts, expected one for "
                                    "other matrices only")
    raise GGUFError(f"{gguf.path}: tensor {name!r}: the model has no such matrix; does the adapter belong to another "
                    "model?")
