"""DeepSeek-MoE (arXiv:2401.06066): fine-grained experts by unnormalised router weights, and experts shared by all."""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import MAX_EXPERTS, MAX_LAYERS, HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, experts, feed_forward, norm, shared_expert
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="interleaved", needs_experts=True)
    n_shared = keys.integer("expert_shared_count", high=MAX_EXPERTS)
    return replace(hp, n_ff_shared=hp.n_ff_expert * n_shared,
                   expert_weights_scale=keys.number("expert_weights_scale", 1.0, low=0, high=1e6) or 1.0,
                   n_layer_dense_lead=keys.integer("leading_dense_block_count", 0, low=0, high=MAX_LAYERS))


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer, dense in the lead: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope))
    normed = norm(g, x, hp, w, "ffn_norm")
    if layer.index < hp.n_layer_dense_lead:
        return g.add(x, feed_forward(g, normed, layer))
    return g.add(x, g.add(experts(g, normed, layer, normalise=False), shared_expert(g, normed, layer)))
