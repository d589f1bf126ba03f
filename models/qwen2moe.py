"""Qwen 1.5 and 2 with experts (arXiv:2407.10671): unnormalised router weights and a gated shared expert."""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import MAX_WIDTH, HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, experts, norm, shared_expert
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox", needs_experts=True)
    n_ff_shared = keys.integer("expert_shared_feed_forward_length", 0, low=0, high=MAX_WIDTH)
    return replace(hp, n_ff_expert=hp.n_ff_expert or hp.n_ff[0] // hp.n_expert_used,
                   n_ff_shared=n_ff_shared or hp.n_ff[0])


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope))
    normed = norm(g, x, hp, w, "ffn_norm")
    mixture = g.add(experts(g, normed, layer, normalise=False), shared_expert(g, normed, layer, gated=True))
    return g.add(x, mixture)
