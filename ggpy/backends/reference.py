"""What every operation of a graph means, in NumPy: the oracle that all other backends are tested against.

One whole sequence at a time, no cache, float32 values (float64 inside norms and softmax), weights dequantised where
they are used. Slow on purpose: a reader should see the formula.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpy.arrays import Float32
from ggpy.backends.base import CacheTypes, KVType
from ggpy.backends.key_offset import key_offset
from ggpy.errors import RequestError
from ggpy.formats import dequantize, quantize
from ggpy.gguf import TensorInfo
from ggpy.gguf.types import TensorType
from ggpy.graph import ops
from ggpy.graph.adapters import Adapter, embedding_term
from ggpy.graph.ops import ActivationKind, Graph, Op, OutputKind, RopeTable

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

MIN_ROUTE_SUM = 2.0**-14        # smallest divisor of expert weights, as llama.cpp bounds it


def evaluate(graph: Graph, tokens: Sequence[int] | NDArray[np.integer[Any]], *,
             cache_types: CacheTypes = ("f32", "f32"),
             outputs: Sequence[int] | None = None,
             adapters: Sequence[tuple[Adapter, float]] = ()) -> dict[OutputKind, Float32]:
    """The outputs of `graph` for `tokens` (n,), which start at position 0: rows (n_outputs, width) per output kind.

    Keys and values are rounded to `cache_types` before attention reads them. `outputs` are the positions whose output
    is wanted; None: all. Of each of the `adapters` so much is added to the matrices as stands beside it. Raises
    RequestError for a token that the embedding has no row for.
    """
    step = Step(tokens=np.asarray(tokens, np.int64), cache_types=cache_types,
                outputs=np.arange(len(tokens)) if outputs is None else np.asarray(outputs, np.int64),
                adapters=adapters)
    values: dict[Op, Float32] = {}
    for op in graph.nodes:
        values[op] = MEANING[type(op)](op, step, *(values[x] for x in op.inputs))
    return {kind: values[op] for kind, op in graph.outputs.items()}


@dataclass
class Step:
    """What the rows are: tokens (n,) at positions 0..n-1, output rows, and the experts (n, n_used) of each route; and
    the adapters, with how much of each is added."""

    tokens: Int64
    cache_types: CacheTypes
    outputs: Int64
    adapters: Sequence[tuple[Adapter, float]] = ()
    experts: dict[Op, Int64] = field(default_factory=dict)


def weights(tensor: TensorInfo) -> Float32:
    """The tensor as float32 in its shape."""
    return dequantize(tensor.rows(), tensor.type).reshape(tensor.shape)


def embed(op: ops.Embed, step: Step) -> Float32:
    indices = {"token": step.tokens, "position": np.arange(len(step.tokens)),
               "none": np.zeros(len(step.tokens), np.int64)}[op.index]
    n_rows = op.weight.shape[0]
    if indices.size and not 0 <= indices.min() <= indices.max() < n_rows:
        raise RequestError(f"{op.index} {indices.max()} is out of range: {op.weight.name} has {n_rows} rows")
    rows: Float32 = dequantize(op.weight.rows()[indices], op.weight.type) * np.float32(op.scale)
    for adapter, scale in step.adapters if op.index == "token" else ():
        if adapter.embedding is not None:
            rows += embedding_term(adapter.embedding, indices, scale)
    return rows


def rms_norm(op: ops.RmsNorm, step: Step, x: Float32) -> Float32:
    parts = x.astype(np.float64).reshape(len(x), op.groups, -1)
    parts /= np.sqrt(np.mean(parts**2, axis=-1, keepdims=True) + op.eps)
    if op.weight is not None:
        parts *= per_group(op.weight, op.groups, parts.shape[-1])
    return parts.reshape(x.shape).astype(np.float32)


def layer_norm(op: ops.LayerNorm, step: Step, x: Float32) -> Float32:
    parts = x.astype(np.float64).reshape(len(x), op.groups, -1)
    parts -= parts.mean(axis=-1, keepdims=True)
    parts /= np.sqrt(np.mean(parts**2, axis=-1, keepdims=True) + op.eps)
    if op.weight is not None:
        parts *= per_group(op.weight, op.groups, parts.shape[-1])
    if op.bias is not None:
        parts += per_group(op.bias, op.groups, parts.shape[-1])
    return parts.reshape(x.shape).astype(np.float32)


def per_group(tensor: TensorInfo, groups: int, width: int) -> Float32:
    """A norm's weight as (groups, width), or (1, width) where all groups share it."""
    values = weights(tensor).reshape(-1, width)
    assert len(values) in (1, groups)
    return values


def linear(op: ops.Linear, step: Step, x: Float32) -> Float32:
    y: Float32 = x @ weights(op.weight).T
    for adapter, scale in step.adapters:
        if (term := adapter.linear.get(op.weight.name)) is not None:
            y += (x @ term.a.T) @ term.b.T * np.float32(scale)
    return y if op.bias is None else y + weights(op.bias).ravel()


def rotation(table: RopeTable, n: int) -> tuple[Float64, Float64]:
    """cos and sin (n, 1, n_rot / 2) of positions 0..n-1."""
    positions = np.arange(n)[:, None, None]
    angles = positions * table.inv_freq
    growth = 1 + table.temperature * np.log(1 + positions // table.temperature_period)
    return np.cos(angles) * table.magnitude * growth, np.sin(angles) * table.magnitude * growth


def rope(op: ops.Rope, step: Step, x: Float32) -> Float32:
    heads = x.reshape(len(x), op.n_head, op.head_dim).copy()
    first, second = op.pairs
    a, b = heads[..., first].astype(np.float64), heads[..., second].astype(np.float64)
    cos, sin = rotation(op.table, len(x))
    heads[..., first] = a * cos - b * sin
    heads[..., second] = a * sin + b * cos
    return heads.reshape(x.shape)


def kept(x: Float32, kind: KVType, offset: Float32 | None = None) -> Float32:
    """Keys or values (n, n_head_kv, head_dim) as the pages give them back: in q8_0, keys less their offset."""
    if kind == "q8_0":
        return dequantize(quantize(x if offset is None else x - offset, TensorType.Q8_0), TensorType.Q8_0)
    return x.astype(np.float16).astype(np.float32) if kind == "f16" else x


def attention(op: ops.Attention, step: Step, q: Float32, k: Float32, v: Float32) -> Float32:
    n, group = len(q), op.n_head // op.n_head_kv
    queries = q.reshape(n, op.n_head_kv, group, op.head_dim_k)
    k_type, v_type = step.cache_types
    keys = kept(k.reshape(n, op.n_head_kv, -1), k_type, key_offset(op) if k_type == "q8_0" else None)
    values = kept(v.reshape(n, op.n_head_kv, -1), v_type)

    scores = np.einsum("ihgd,jhd->hgij", queries, keys).astype(np.float64) * op.scale
    if op.softcap is not None:
        scores = op.softcap * np.tanh(scores / op.softcap)
    i, j = np.arange(n)[:, None], np.arange(n)
    if op.alibi:
        scores -= np.array(op.alibi).reshape(op.n_head_kv, group, 1, 1) * np.abs(i - j)
    hidden = (j > i) & op.causal
    if op.window is not None:
        hidden |= i - j >= op.window
    scores[..., hidden] = -np.inf

    peak = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    sinks = None if op.sinks is None else weights(op.sinks).reshape(op.n_head_kv, group, 1, 1)
    if sinks is not None:
        peak = np.maximum(peak, sinks)
    p = np.exp(scores - peak)
    total = p.sum(axis=-1, keepdims=True)
    if sinks is not None:
        total += np.exp(sinks - peak)
    p /= total
    mixed: Float64 = np.einsum("hgij,jhd->ihgd", p, values.astype(np.float64))
    return mixed.reshape(n, op.width).astype(np.float32)


def sigmoid(x: Float64) -> Float64:
    y: Float64 = np.exp(-np.logaddexp(0, -x))
    return y


def gelu(x: Float64) -> Float64:
    bent: Float64 = np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))
    return 0.5 * x * (1 + bent)


ACTIVATIONS: dict[ActivationKind, Callable[[Float64], Float64]] = {
    "silu": lambda x: x * sigmoid(x),
    "gelu": gelu,
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "relu": lambda x: np.maximum(x, 0),
    "relu_squared": lambda x: np.maximum(x, 0) ** 2,
}


def activation(op: ops.Activation, step: Step, *inputs: Float32) -> Float32:
    gate = inputs[0].astype(np.float64)
    if op.kind == "swiglu_oai":
        gate = np.minimum(gate, 7)
        return (gate * sigmoid(1.702 * gate) * (np.clip(inputs[1], -7, 7) + 1)).astype(np.float32)
    y = ACTIVATIONS[op.kind](gate)
    return (y if len(inputs) == 1 else y * inputs[1]).astype(np.float32)


def add(op: ops.Add, step: Step, a: Float32, b: Float32) -> Float32:
    return a + b


def scale(op: ops.Scale, step: Step, x: Float32) -> Float32:
    return x * np.float32(op.factor)


def softcap(op: ops.Softcap, step: Step, x: Float32) -> Float32:
    return (op.cap * np.tanh(x.astype(np.float64) / op.cap)).astype(np.float32)


def take_outputs(op: ops.TakeOutputs, step: Step, x: Float32) -> Float32:
    return x[step.outputs]


def softmax_rows(op: ops.Softmax, step: Step, x: Float32) -> Float32:
    return softmax(x.astype(np.float64)).astype(np.float32)


def softmax(x: Float64) -> Float64:
    p: Float64 = np.exp(x - x.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return p


def route(op: ops.Route, step: Step, logits: Float32) -> Float32:
    x = logits.astype(np.float64)
    scores = softmax(x) if op.scoring == "softmax" else sigmoid(x) if op.scoring == "sigmoid" else x
    ranking = scores if op.selection_bias is None else scores + weights(op.selection_bias).ravel()
    chosen = np.argsort(-ranking, axis=-1, kind="stable")[:, :op.n_used]      # stable: ties to the lower index
    w = np.take_along_axis(scores, chosen, axis=-1)
    if op.scoring == "softmax_after":
        w = softmax(w)
    if op.normalise:
        w = w / np.maximum(w.sum(axis=-1, keepdims=True), MIN_ROUTE_SUM)
    step.experts[op] = chosen
    return (w * op.scale).astype(np.float32)


def expert_linear(op: ops.ExpertLinear, step: Step, x: Float32, _: Float32) -> Float32:
    chosen = step.experts[op.inputs[1]]
    n_used = chosen.shape[1]
    slots = x if op.inputs[0].rows == "slots" else np.repeat(x, n_used, axis=0)
    expert_of_slot = chosen.ravel()
    stack = op.weight.rows().reshape(*op.weight.shape[:2], -1)
    y = np.empty((len(slots), op.width), np.float32)
    for expert in np.unique(expert_of_slot):
        mine = expert_of_slot == expert
        y[mine] = slots[mine] @ dequantize(stack[expert], op.weight.type).T
    return y if op.bias is None else y + weights(op.bias)[expert_of_slot]


def expert_sum(op: ops.ExpertSum, step: Step, slots: Float32, w: Float32) -> Float32:
    ranks = slots.reshape(*w.shape, op.width) * w[..., None]
    total = np.zeros((len(w), op.width), np.float32)
    for rank in range(w.shape[1]):
        total += ranks[:, rank]
    return total


MEANING: dict[type[Op], Callable[..., Float32]] = {
    ops.Embed: embed,
    ops.RmsNorm: rms_norm,
    ops.LayerNorm: layer_norm,
    ops.Linear: linear,
    ops.Rope: rope,
    ops.Attention: attention,
    ops.Activation: activation,
    ops.Add: add,
    ops.Scale: scale,
    ops.Softcap: softcap,
    ops.Softmax: softmax_rows,
    ops.TakeOutputs: take_outputs,
    ops.Route: route,
    ops.ExpertLinear: expert_linear,
    ops.ExpertSum: expert_sum,
}
