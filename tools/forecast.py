"""How much memory a model will take, told from its file without loading it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ggpy.backends.base import PAGE_TOKENS, kv_bytes
from ggpy.backends.cpu.weights import packed_bytes, stays_in_file
from ggpy.engine.config import EngineConfig
from ggpy.engine.pages import pages_for, pool_pages
from ggpy.errors import GgpyError
from ggpy.gguf import GGUFFile, TensorInfo
from ggpy.graph.lower import lower
from ggpy.graph.ops import ExpertLinear, Linear
from ggpy.graph.plan import Plan
from ggpy.kernels.cpu.attention_memory import attention_partials_bytes
from ggpy.kernels.cpu.packing import packing_of
from ggpy.loading import MAX_RUNNING, USUAL_N_CTX
from ggpy.machine import usable_cores
from ggpy.models import build_model

MAX_BATCH_TOKENS = EngineConfig(n_ctx=USUAL_N_CTX).max_batch_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextForecast:
    """For conversations of `n_ctx` tokens, in bytes; None where the file does not tell."""

    n_ctx: int
    kv_bytes: int | None            # keys and values in f16
    total_packed_bytes: int | None
    total_mapped_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """In bytes. `packed` weights are copies in the order that kernels like best; `mapped` ones are read from the file,
    whose pages the system may drop and read again."""

    is_exact: bool                  # from the model's own plan; else from tensors and metadata alone
    weights_packed_bytes: int
    weights_mapped_bytes: int
    activations_bytes: int | None
    contexts: tuple[ContextForecast, ...]       # for the default context and for the model's longest


def forecast(file: GGUFFile, n_ctx_train: int | None, kv_bytes_per_token: int | None) -> tuple[Forecast, str | None]:
    """The forecast, and why ggpy cannot run the model if that is so: then it is made from the tensors alone."""
    sizes = sorted({min(USUAL_N_CTX, n_ctx_train or USUAL_N_CTX), n_ctx_train or USUAL_N_CTX})
    try:
        model = build_model(file)
        plan = lower(model.graph, wants_int8=lambda tensor: packing_of(tensor.type).int8,
                     max_tokens=MAX_BATCH_TOKENS, max_outputs=MAX_RUNNING)
    except GgpyError as error:
        return _from_tensors(file, sizes, kv_bytes_per_token), str(error)
    return _from_plan(plan, sizes), None


def _from_plan(plan: Plan, sizes: Iterable[int]) -> Forecast:
    matrices = [task.op.weight for task in plan.tasks if isinstance(task.op, Linear | ExpertLinear)]
    packed, mapped = packed_bytes(matrices, float32=False), _mapped_bytes(matrices)
    n_threads = usable_cores()
    contexts = []
    for n_ctx in sizes:
        kv = _kv_bytes(plan, n_ctx)
        n_positions = pages_for(n_ctx) * PAGE_TOKENS
        partials = max((attention_partials_bytes(op, n_threads, n_positions) for op in plan.attentions), default=0)
        rest = kv + partials + plan.arena_bytes
        contexts.append(ContextForecast(n_ctx=n_ctx, kv_bytes=kv, total_packed_bytes=packed + rest,
                                        total_mapped_bytes=mapped + rest))
    return Forecast(is_exact=True, weights_packed_bytes=packed, weights_mapped_bytes=mapped,
                    activations_bytes=plan.arena_bytes, contexts=tuple(contexts))


def _from_tensors(file: GGUFFile, sizes: Iterable[int], kv_bytes_per_token: int | None) -> Forecast:
    """All matrices but the embedding, which is read row by row; activations are left out."""
    is_tied = "output.weight" not in file.tensors
    matrices = [tensor for name, tensor in file.tensors.items()
                if len(tensor.shape) > 1 and (is_tied or name != "token_embd.weight")]
    packed, mapped = packed_bytes(matrices, float32=False), _mapped_bytes(matrices)
    contexts = []
    for n_ctx in sizes:
        kv = None if kv_bytes_per_token is None else kv_bytes_per_token * n_ctx
        contexts.append(ContextForecast(
            n_ctx=n_ctx, kv_bytes=kv, total_packed_bytes=None if kv is None else packed + kv,
            total_mapped_bytes=None if kv is None else mapped + kv))
    return Forecast(is_exact=False, weights_packed_bytes=packed, weights_mapped_bytes=mapped, activations_bytes=None,
                    contexts=tuple(contexts))


def _mapped_bytes(matrices: Iterable[TensorInfo]) -> int:
    """The file's pages of what can be read in place, and packed copies of the rest."""
    unique = {tensor.name: tensor for tensor in matrices}.values()
    return sum(tensor.size_bytes if stays_in_file(tensor, float32=False) else packed_bytes([tensor], float32=False)
               for tensor in unique)


def _kv_bytes(plan: Plan, n_ctx: int) -> int:
    """Keys and values of all pools, in f16."""
    groups = plan.kv_groups
    n_pages = pool_pages(groups, n_ctx, min(MAX_BATCH_TOKENS, n_ctx))
    pages_of = {layer: n for group, n in zip(groups, n_pages, strict=True) for layer in group.layers}
    return sum(kv_bytes(op.n_head_kv * (op.head_dim_k + op.head_dim_v), "f16") * pages_of[op.layer] * PAGE_TOKENS
               for op in plan.attentions)
