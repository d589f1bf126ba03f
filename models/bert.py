"""BERT (arXiv:1810.04805) and encoders of its form: Nomic (arXiv:2402.01613), Jina v2 (arXiv:2310.19923) and v3.

Tokens see each other in both directions. Layers norm what they have added up: x = norm(x + attention(x)), x = norm(x +
network(x)). Positions are learned (BERT), turn queries and keys (Nomic, Jina v3) or weaken attention with distance
(Jina v2). All tokens are of type 0, the first of two texts, as llama.cpp has it. Rerankers have a classifier on top.
"""

import math
from dataclasses import replace

from ggpy.errors import ConfigError
from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import (
    Layer,
    QkNorm,
    attention,
    classifier,
    embed,
    feed_forward,
    layers,
    norm,
    plain_feed_forward,
)
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights

ROTARY = ("nomic-bert", "jina-bert-v3")
MAX_ALIBI_BIAS = 8.0


def hparams(keys: Keys) -> HParams:
    if keys.flag("attention.causal", False):
        raise keys.error("attention.causal", "false: this architecture's attention has two directions")
    hp = read_hparams(keys, pairing="neox", norm="layer")
    alibi = alibi_slopes(hp.n_head[0]) if keys.arch == "jina-bert-v2" else ()
    return replace(hp, causal=False, alibi=alibi)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    x = norm(g, embeddings(g, hp, weights, n_ctx), hp, weights, "token_embd_norm")
    rope = rope_table(hp.rope, weights, n_ctx) if hp.arch in ROTARY else None
    for layer in layers(hp, weights):
        x = encoder_layer(g, x, layer, rope)
    hidden = g.take_outputs(x)
    g.output("hidden", hidden)
    classifier(g, hidden, hp, weights)


def embeddings(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> Op:
    """The sum of the embeddings of tokens, token types and positions, as far as the model has them."""
    x = embed(g, hp, weights)
    types = weights.gguf.tensors.get("token_types.weight")
    if types is not None:
        x = g.add(x, g.embed(weights.get(types.name, types.shape[0], hp.n_embd), index="none"))
    if hp.arch != "bert":
        return x
    if n_ctx > hp.n_ctx_train:
        raise ConfigError(f"n_ctx={n_ctx:,}: {hp.arch} has learned positions for {hp.n_ctx_train:,} tokens; "
                          "choose a context of at most that")
    positions = weights.get("position_embd.weight", hp.n_ctx_train, hp.n_embd)
    return g.add(x, g.embed(positions, index="position"))


def encoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable | None) -> Op:
    """Post-norm encoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    qk_norm: QkNorm = "row" if w.has("attn_q_norm.weight") else "none"
    mixed = norm(g, g.add(attention(g, x, layer, rope, qk_norm=qk_norm), x), hp, w, "attn_output_norm")
    if w.has("attn_norm_2.weight"):
        mixed = norm(g, g.add(mixed, x), hp, w, "attn_norm_2")
    return norm(g, g.add(network(g, mixed, layer), mixed), hp, w, "layer_output_norm")


def network(g: Graph, x: Op, layer: Layer) -> Op:
    """Silu-gated in Nomic's models, else gelu; Jina v2 gates where the file has a gate, by itself or in ffn_up."""
    w, arch = layer.w, layer.hp.arch
    if arch == "nomic-bert":
        return feed_forward(g, x, layer, "silu")
    up = w.gguf.tensors.get(f"{w.prefix}ffn_up.weight")
    is_fused = up is not None and up.shape[0] == 2 * layer.n_ff
    if arch == "jina-bert-v2" and (is_fused or w.has("ffn_gate.weight")):
        return feed_forward(g, x, layer, "gelu")
    return plain_feed_forward(g, x, layer, "gelu")


def alibi_slopes(n_head: int) -> tuple[float, ...]:
    """How much a head's scores fall with each position of distance (ALiBi, arXiv:2108.12409): 2^(-8 / n) and so on for
    the first power of two of heads, and what lies halfway between for the others."""
    n = 1 << int(math.log2(n_head))
    base, between = 2.0 ** (-MAX_ALIBI_BIAS / n), 2.0 ** (-MAX_ALIBI_BIAS / 2 / n)
    return tuple(base ** (i + 1) if i < n else between ** (2 * (i - n) + 1) for i in range(n_head))
