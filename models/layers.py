"""The parts that architectures share: norms, attention, feed-forward networks, experts, the output."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from ggpy.graph.ops import ActivationKind, Graph, Op, RopeTable
from ggpy.models.hparams import HParams
from ggpy.models.weights import Weights, split_rows

QkNorm = Literal["none", "head", "row"]      # no norm of queries and keys, one per head, one over all heads


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer to be built: its number, the model's hyperparameters and its own weights."""

    index: int
    hp: HParams
    w: Weights

    @property
    def n_head(self) -> int:
        return self.hp.n_head[self.index]

    @property
    def n_head_kv(self) -> int:
        return self.hp.n_head_kv[self.index]

    @property
    def n_ff(self) -> int:
        return self.hp.n_ff[self.index]

    @property
    def slides(self) -> bool:
        return self.hp.window[self.index] is not None


def layers(hp: HParams, weights: Weights) -> Iterator[Layer]:
    """The layers in order."""
    for index in range(hp.n_layer):
        yield Layer(index, hp, weights.layer(index))


def embed(g: Graph, hp: HParams, weights: Weights) -> Op:
    """Token embeddings (n_tokens, n_embd)."""
    return g.embed(weights.get("token_embd.weight", hp.n_vocab, hp.n_embd), scale=hp.embedding_scale)


def norm(g: Graph, x: Op, hp: HParams, w: Weights, name: str) -> Op:
    """RMS or layer norm of whole rows, by the kind of the architecture."""
    weight = w.get(f"{name}.weight", x.width)
    if hp.norm == "rms":
        return g.rms_norm(x, weight, hp.norm_eps)
    return g.layer_norm(x, weight, w.find(f"{name}.bias", x.width), hp.norm_eps)


def linear(g: Graph, x: Op, w: Weights, name: str, n_out: int) -> Op:
    """x times a weight (n_out, x.width), plus its bias if the file has one."""
    return g.linear(x, w.get(f"{name}.weight", n_out, x.width), w.find(f"{name}.bias", n_out))


def qkv(g: Graph, x: Op, layer: Layer) -> tuple[Op, Op, Op]:
    """Queries, keys and values by three linears; a fused weight in the file is used in three parts."""
    hp, w = layer.hp, layer.w
    sizes = {"q": layer.n_head * hp.head_dim_k, "k": layer.n_head_kv * hp.head_dim_k,
             "v": layer.n_head_kv * hp.head_dim_v}
    if not w.has("attn_qkv.weight"):
        q, k, v = (linear(g, x, w, f"attn_{part}", size) for part, size in sizes.items())
        return q, k, v
    total = sum(sizes.values())
    bias = w.find("attn_qkv.bias", total)
    biases = [None] * 3 if bias is None else split_rows(bias, *sizes.values())
    fused = split_rows(w.get("attn_qkv.weight", total, x.width), *sizes.values())
    q, k, v = (g.linear(x, weight, b) for weight, b in zip(fused, biases, strict=True))
    return q, k, v


def head_norm(g: Graph, x: Op, layer: Layer, name: str, n_head: int, kind: QkNorm) -> Op:
    """Norm of queries or keys: RMS with one weight for all heads, layer norm with a weight for each."""
    hp, w = layer.hp, layer.w
    if kind == "row":
        return norm(g, x, hp, w, name)
    if hp.norm == "rms":
        return g.rms_norm(x, w.get(f"{name}.weight", x.width // n_head), hp.norm_eps, groups=n_head)
    return g.layer_norm(x, w.get(f"{name}.weight", n_head, x.width // n_head), None, hp.norm_eps, groups=n_head)


def attention(g: Graph, x: Op, layer: Layer, rope: RopeTable | None, *, rope_q: RopeTable | None = None,
              qk_norm: QkNorm = "none", sinks: bool = False) -> Op:
    """Self-attention from normed x (n_tokens, n_embd) to its output projection, same shape.

    `rope` turns queries and keys (None: no positions); `rope_q` is a table for the queries alone.
    """
    hp, w = layer.hp, layer.w
    n_head, n_head_kv = layer.n_head, layer.n_head_kv
    q, k, v = qkv(g, x, layer)
    if qk_norm != "none":
        q = head_norm(g, q, layer, "attn_q_norm", n_head, qk_norm)
        k = head_norm(g, k, layer, "attn_k_norm", n_head_kv, qk_norm)
    if rope is not None and hp.rope.n_rot:
        q = g.rope(q, rope_q or rope, n_head, hp.rope.pairing)
        k = g.rope(k, rope, n_head_kv, hp.rope.pairing)
    mixed = g.attention(q, k, v, layer=layer.index, n_head=n_head, n_head_kv=n_head_kv, scale=hp.attention_scale,
                        window=hp.window[layer.index], softcap=hp.attention_softcap,
                        sinks=w.get("attn_sinks.weight", n_head) if sinks else None, causal=hp.causal,
                        alibi=hp.alibi)
    return linear(g, mixed, w, "attn_output", hp.n_embd)


def feed_forward(g: Graph, x: Op, layer: Layer, act: ActivationKind = "silu") -> Op:
    """Gated network: down(act(gate(x)) * up(x)). Without ffn_gate, ffn_up holds the gate's rows, then its own."""
    w, n_ff = layer.w, layer.n_ff
    if w.has("ffn_gate.weight"):
        gate, up = linear(g, x, w, "ffn_gate", n_ff), linear(g, x, w, "ffn_up", n_ff)
    else:
        fused = split_rows(w.get("ffn_up.weight", 2 * n_ff, x.width), n_ff, n_ff)
        bias = w.find("ffn_up.bias", 2 * n_ff)
        biases = (None, None) if bias is None else split_rows(bias, n_ff, n_ff)
        gate, up = (g.linear(x, weight, b) for weight, b in zip(fused, biases, strict=True))
    return linear(g, g.activation(act, gate, up), w, "ffn_down", layer.hp.n_embd)


def plain_feed_forward(g: Graph, x: Op, layer: Layer, act: ActivationKind) -> Op:
    """Network without a gate: down(act(up(x)))."""
    up = linear(g, x, layer.w, "ffn_up", layer.n_ff)
    return linear(g, g.activation(act, up), layer.w, "ffn_down", layer.hp.n_embd)


def experts(g: Graph, x: Op, layer: Layer, *, act: ActivationKind = "silu",
            scoring: Literal["softmax", "sigmoid", "softmax_after"] = "softmax", normalise: bool = True) -> Op:
    """Mixture of gated networks: each token runs through its n_expert_used best and sums them by router weight."""
    hp, w, n_ff = layer.hp, layer.w, layer.hp.n_ff_expert
    logits = linear(g, x, w, "ffn_gate_inp", hp.n_expert)
    route = g.route(logits, hp.n_expert_used, scoring=scoring, normalise=normalise, scale=hp.expert_weights_scale,
                    selection_bias=w.find("exp_probs_b.bias", hp.n_expert))

    def each(x: Op, name: str, n_out: int) -> Op:
        return g.expert_linear(x, route, w.get(f"{name}.weight", hp.n_expert, n_out, x.width),
                               w.find(f"{name}.bias", hp.n_expert, n_out))

    gate, up = each(x, "ffn_gate_exps", n_ff), each(x, "ffn_up_exps", n_ff)
    return g.expert_sum(each(g.activation(act, gate, up), "ffn_down_exps", hp.n_embd), route)


def shared_expert(g: Graph, x: Op, layer: Layer, *, gated: bool = False) -> Op:
    """The expert that every token runs through; `gated` weighs it by the sigmoid of ffn_gate_inp_shexp."""
    hp, w = layer.hp, layer.w
    gate, up = (linear(g, x, w, name, hp.n_ff_shared) for name in ("ffn_gate_shexp", "ffn_up_shexp"))
    y = linear(g, g.activation("silu", gate, up), w, "ffn_down_shexp", hp.n_embd)
    if not gated:
        return y
    return g.expert_sum(y, g.route(linear(g, x, w, "ffn_gate_inp_shexp", 1), 1, scoring="sigmoid", normalise=False))


def feed_forward_or_experts(g: Graph, x: Op, layer: Layer) -> Op:
    """Silu-gated network, or a mixture of them with weights that sum to 1, and a shared expert if there is one."""
    if not layer.hp.n_expert:
        return feed_forward(g, x, layer)
    y = experts(g, x, layer)
    return g.add(y, shared_expert(g, x, layer)) if layer.hp.n_ff_shared else y


def output(g: Graph, x: Op, hp: HParams, weights: Weights) -> None:
    """The outputs: hidden states after the last norm, and logits by `output.weight` or the embedding itself."""
    hidden = norm(g, g.take_outputs(x), hp, weights, "output_norm")
    g.output("hidden", hidden)
    name = "output.weight" if weights.has("output.weight") else "token_embd.weight"
    logits: Op = g.linear(hidden, weights.get(name, hp.n_vocab, hp.n_embd), weights.find("output.bias", hp.n_vocab))
    if hp.logit_scale != 1.0:
        logits = g.scale(logits, hp.logit_scale)
    if hp.final_softcap is not None:
        logits = g.softcap(logits, hp.final_softcap)
    g.output("logits", logits)


def classifier(g: Graph, hidden: Op, hp: HParams, weights: Weights) -> None:
    """The scores of a reranker, if the file has one: a dense layer with tanh, one row per class, or both."""
    x = hidden
    if weights.has("cls.weight"):
        width = hp.n_embd if weights.has("cls.output.weight") else hp.n_classes
        x = g.softcap(linear(g, x, weights, "cls", width), 1.0)         # tanh
    if weights.has("cls.output.weight"):
        x = linear(g, x, weights, "cls.output", hp.n_classes)
    if x is not hidden:
        g.output("scores", x)


def decoder(g: Graph, hp: HParams, weights: Weights, decoder_layer: Callable[[Graph, Op, Layer, RopeTable], Op],
            rope: RopeTable) -> None:
    """The whole forward pass of a family whose layers all turn by the same table."""
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope)
    output(g, x, hp, weights)
