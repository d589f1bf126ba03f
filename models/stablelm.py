"""StableLM 2 (arXiv:2402.17834): layer norms, rotary positions on part of a head, parallel blocks in the 12B."""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, feed_forward, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox", norm="layer")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Decoder layer, x (n_tokens, n_embd) in and out. Without ffn_norm both blocks read the same normed input."""
    hp, w = layer.hp, layer.w
    normed: Op = norm(g, x, hp, w, "attn_norm")
    x = g.add(x, attention(g, normed, layer, rope, qk_norm="head" if w.has("attn_q_norm.weight") else "none"))
    if w.has("ffn_norm.weight"):
        normed = norm(g, x, hp, w, "ffn_norm")
    return g.add(x, feed_forward(g, normed, layer))
