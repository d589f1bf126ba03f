"""Falcon (arXiv:2311.16867) and Phi-2: attention and a gelu network side by side on one norm, or two in Falcon 40B."""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, norm, plain_feed_forward
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox", norm="layer")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Parallel decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    normed = norm(g, x, hp, w, "attn_norm")
    for_attention = norm(g, x, hp, w, "attn_norm_2") if w.has("attn_norm_2.weight") else normed
    attended = g.add(x, attention(g, for_attention, layer, rope))
    return g.add(attended, plain_feed_forward(g, normed, layer, "gelu"))
