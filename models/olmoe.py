"""OLMoE (arXiv:2409.02060): experts by unnormalised router weights, and one RMS norm over all of q and k."""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, experts, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox", needs_experts=True)
    return replace(hp, n_ff_expert=hp.n_ff[0])


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope, qk_norm="row"))
    return g.add(x, experts(g, norm(g, x, hp, w, "ffn_norm"), layer, normalise=False))
