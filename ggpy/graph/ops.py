"""The operations of a forward pass, and the builder that model files call.

A graph is built once per model. Every value is a float32 matrix (n_rows, width): one row per token of the step, or
per requested output after `take_outputs`, or per (token, chosen expert) pair inside a mixture of experts. The number
of rows is not known when the graph is built. Attention is the only operation that looks at other rows, through the
KV pages of its layer.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt

from ggpy.errors import UnsupportedModelError
from ggpy.gguf import TensorInfo

RowKind = Literal["tokens", "outputs", "slots"]
ActivationKind = Literal["silu", "gelu", "gelu_quick", "relu", "relu_squared", "swiglu_oai"]
OutputKind = Literal["logits", "hidden", "scores"]
EmbedIndex = Literal["token", "position", "none"]


@dataclass(frozen=True, eq=False, kw_only=True)
class Op:
    """One node. `inputs` are the values it reads; `width` and `rows` describe the value that it makes."""

    inputs: tuple["Op", ...] = ()
    width: int
    rows: RowKind = "tokens"


@dataclass(frozen=True, eq=False, kw_only=True)
class Embed(Op):
    """Rows of `weight` (n, width), times `scale`: by token, by position, or row 0 for every token ("none")."""

    weight: TensorInfo
    scale: float = 1.0
    index: EmbedIndex = "token"


@dataclass(frozen=True, eq=False, kw_only=True)
class RmsNorm(Op):
    """x / sqrt(mean(x^2) + eps) * weight within each of `groups` equal parts of a row.

    `weight` is (width / groups,) and shared by the groups, or (width,), one part for each; None stands for ones.
    """

    weight: TensorInfo | None
    eps: float
    groups: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerNorm(Op):
    """(x - mean) / sqrt(var + eps) * weight + bias within each of `groups` equal parts of a row.

    `weight` and `bias` hold `width` values, in one row or one row per group; None stands for ones and zeros.
    """

    weight: TensorInfo | None
    bias: TensorInfo | None
    eps: float
    groups: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear(Op):
    """x @ weight.T + bias with weight (width, n_in)."""

    weight: TensorInfo
    bias: TensorInfo | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RopeTable:
    """Rotation angles: pair i of a row at position p turns by p * inv_freq[i]; cos and sin are times `magnitude`.

    Every rope scaling (linear, llama3, yarn, longrope) is a choice of these two. `inv_freq` is float64 (n_rot / 2,).
    With a `temperature`, cos and sin also grow by 1 + temperature * ln(1 + floor(p / temperature_period)): queries
    that get sharper with distance (Ministral 3).
    """

    inv_freq: npt.NDArray[np.float64]
    magnitude: float = 1.0
    temperature: float = 0.0
    temperature_period: int = 1


@dataclass(frozen=True, eq=False, kw_only=True)
class Rope(Op):
    """Rotary position embedding of the first n_rot = 2 * len(inv_freq) dims of each head, in pairs.

    "interleaved" pairs (2i, 2i + 1), as Llama's own code does, "neox" (i, i + n_rot / 2), as GPT-NeoX's.
    """

    n_head: int
    head_dim: int
    table: RopeTable
    pairing: Literal["interleaved", "neox"]

    @property
    def pairs(self) -> tuple[slice, slice]:
        """The dimensions of a head that come first in their pairs, and those that come second."""
        half = len(self.table.inv_freq)
        if self.pairing == "interleaved":
            return slice(0, 2 * half, 2), slice(1, 2 * half, 2)
        return slice(0, half), slice(half, 2 * half)


@dataclass(frozen=True, eq=False, kw_only=True)
class Attention(Op):
    """Attention of q (n_head * head_dim_k) over this sequence's keys and values, this step's k and v included.

    k (n_head_kv * head_dim_k) and v (n_head_kv * head_dim_v) are first stored in the layer's KV pages and read as
    rounded there. Scores are q.k * scale, then softcap * tanh(s / softcap) if set. A row sees the last `window`
    positions, itself included; None: all. If not `causal` it sees those after it too, which are all of the same step.
    `alibi` (n_head,) takes alibi * |distance| off the scores of each head. `sinks` (n_head,) adds exp(sink) to the
    denominator of each head.
    """

    layer: int
    n_head: int
    n_head_kv: int
    head_dim_k: int
    head_dim_v: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    sinks: TensorInfo | None = None
    causal: bool = True
    alibi: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Activation(Op):
    """act(inputs[0]), times inputs[1] if there is a second input (the gated form: act(gate) * up).

    "gelu" is the tanh approximation that GGUF models are run with. "swiglu_oai" is gpt-oss's gated form, with
    g = min(gate, 7) and u = clamp(up, -7, 7): g * sigmoid(1.702 * g) * (u + 1).
    """

    kind: ActivationKind


@dataclass(frozen=True, eq=False, kw_only=True)
class Add(Op):
    """inputs[0] + inputs[1]."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Scale(Op):
    """inputs[0] * factor."""

    factor: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Softcap(Op):
    """cap * tanh(inputs[0] / cap)."""

    cap: float


@dataclass(frozen=True, eq=False, kw_only=True)
class Softmax(Op):
    """e^x / sum(e^x) of each row."""


@dataclass(frozen=True, eq=False, kw_only=True)
class TakeOutputs(Op):
    """The rows whose output the step asks for."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Route(Op):
    """Chooses `n_used` experts per token from router logits (n_tokens, n_expert); its value is their weights.

    Scores are softmax or sigmoid of the logits ("softmax_after" takes the top logits first and the softmax of those).
    Selection is by score (+ `selection_bias`), ties to the lower index; weights are the unbiased scores, divided by
    their sum if `normalise`, times `scale`. Slot row token * n_used + rank belongs to (token, rank), best rank first.
    """

    n_used: int
    scoring: Literal["softmax", "sigmoid", "softmax_after"]
    normalise: bool
    scale: float = 1.0
    selection_bias: TensorInfo | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertLinear(Op):
    """For each slot, x @ weight[expert].T (+ bias[expert]) with weight (n_expert, width, n_in).

    inputs are (x, route); x has one row per token or, after another expert operation, one per slot.
    """

    weight: TensorInfo
    bias: TensorInfo | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class ExpertSum(Op):
    """For each token, the sum over its slots in rank order of weight * row. inputs are (slots, route).

    Where the route has n_used 1, slots may be a value with one row per token: that is a gated shared expert.
    """


OpT = TypeVar("OpT", bound=Op)


@dataclass
class Graph:
    """Builder of one model's forward pass; each method appends a node and returns it."""

    nodes: list[Op] = field(default_factory=list)
    outputs: dict[OutputKind, Op] = field(default_factory=dict)

    def _append(self, op: OpT) -> OpT:
        self.nodes.append(op)
        return op

    def embed(self, weight: TensorInfo, *, scale: float = 1.0, index: EmbedIndex = "token") -> Embed:
        return self._append(Embed(width=weight.shape[-1], weight=weight, scale=scale, index=index))

    def rms_norm(self, x: Op, weight: TensorInfo | None, eps: float, *, groups: int = 1) -> RmsNorm:
        return self._append(RmsNorm(inputs=(x,), width=x.width, rows=x.rows, weight=weight, eps=eps, groups=groups))

    def layer_norm(self, x: Op, weight: TensorInfo | None, bias: TensorInfo | None, eps: float, *,
                   groups: int = 1) -> LayerNorm:
        return self._append(LayerNorm(inputs=(x,), width=x.width, rows=x.rows, weight=weight, bias=bias, eps=eps,
                                      groups=groups))

    def linear(self, x: Op, weight: TensorInfo, bias: TensorInfo | None = None) -> Linear:
        n_out, n_in = weight.shape
        require_width(x, n_in, weight.name)
        return self._append(Linear(inputs=(x,), width=n_out, rows=x.rows, weight=weight, bias=bias))

    def rope(self, x: Op, table: RopeTable, n_head: int, pairing: Literal["interleaved", "neox"]) -> Rope:
        return self._append(Rope(inputs=(x,), width=x.width, rows=x.rows, n_head=n_head, head_dim=x.width // n_head,
                                 table=table, pairing=pairing))

    def attention(self, q: Op, k: Op, v: Op, *, layer: int, n_head: int, n_head_kv: int, scale: float,
                  window: int | None = None, softcap: float | None = None, sinks: TensorInfo | None = None,
                  causal: bool = True, alibi: tuple[float, ...] = ()) -> Attention:
        head_dim_v = v.width // n_head_kv
        return self._append(Attention(
            inputs=(q, k, v), width=n_head * head_dim_v, layer=layer, n_head=n_head, n_head_kv=n_head_kv,
            head_dim_k=q.width // n_head, head_dim_v=head_dim_v, scale=scale, window=window, softcap=softcap,
            sinks=sinks, causal=causal, alibi=alibi))

    def activation(self, kind: ActivationKind, x: Op, up: Op | None = None) -> Activation:
        inputs = (x,) if up is None else (x, up)
        return self._append(Activation(inputs=inputs, width=x.width, rows=x.rows, kind=kind))

    def add(self, a: Op, b: Op) -> Add:
        require_width(b, a.width, "add")
        return self._append(Add(inputs=(a, b), width=a.width, rows=a.rows))

    def scale(self, x: Op, factor: float) -> Scale:
        return self._append(Scale(inputs=(x,), width=x.width, rows=x.rows, factor=factor))

    def softcap(self, x: Op, cap: float) -> Softcap:
        return self._append(Softcap(inputs=(x,), width=x.width, rows=x.rows, cap=cap))

    def softmax(self, x: Op) -> Softmax:
        return self._append(Softmax(inputs=(x,), width=x.width, rows=x.rows))

    def take_outputs(self, x: Op) -> TakeOutputs:
        return self._append(TakeOutputs(inputs=(x,), width=x.width, rows="outputs"))

    def route(self, logits: Op, n_used: int, *, scoring: Literal["softmax", "sigmoid", "softmax_after"] = "softmax",
              normalise: bool = True, scale: float = 1.0, selection_bias: TensorInfo | None = None) -> Route:
        return self._append(Route(inputs=(logits,), width=n_used, n_used=n_used, scoring=scoring,
                                  normalise=normalise, scale=scale, selection_bias=selection_bias))

    def expert_linear(self, x: Op, route: Route, weight: TensorInfo, bias: TensorInfo | None = None) -> ExpertLinear:
        _, n_out, n_in = weight.shape
        require_width(x, n_in, weight.name)
        return self._append(ExpertLinear(inputs=(x, route), width=n_out, rows="slots", weight=weight, bias=bias))

    def expert_sum(self, slots: Op, route: Route) -> ExpertSum:
        return self._append(ExpertSum(inputs=(slots, route), width=slots.width))

    @property
    def attentions(self) -> list[Attention]:
        return [op for op in self.nodes if isinstance(op, Attention)]

    def output(self, kind: OutputKind, x: Op) -> None:
        """Marks x as what a step returns: (n_outputs, n_vocab) logits, (n_outputs, n_embd) hidden states, or scores
        (n_outputs, n_classes) of a classifier."""
        self.outputs[kind] = x


def require_width(x: Op, width: int, where: str) -> None:
    """Raises UnsupportedModelError unless rows of x have `width` values."""
    if x.width != width:
        raise UnsupportedModelError(f"{where}: the input has {x.width} values a row, expected {width}")
