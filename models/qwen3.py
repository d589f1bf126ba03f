"""Qwen 3 (arXiv:2505.09388), dense and with experts: no biases, and an RMS norm on every head of q and k.

Its rerankers have the rows of "yes" and "no" as a classifier, so a score is how probable "yes" is beside "no".
"""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, feed_forward_or_experts, linear, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    with_experts = keys.arch == "qwen3moe"
    hp = read_hparams(keys, pairing="neox", needs_experts=with_experts)
    if not with_experts:
        return hp
    return replace(hp, n_ff_expert=hp.n_ff_expert or hp.n_ff[0] // hp.n_expert_used)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))
    if weights.has("cls.output.weight"):
        scores = linear(g, g.outputs["hidden"], weights, "cls.output", hp.n_classes)
        g.output("scores", g.softmax(scores))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope, qk_norm="head"))
    return g.add(x, feed_forward_or_experts(g, norm(g, x, hp, w, "ffn_norm"), layer))
