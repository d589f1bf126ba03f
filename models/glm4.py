"""GLM-4 0414: a norm before and after each block, rotary positions on part of a head, fused gate and up."""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, feed_forward, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    keys.refuse("rope.dimension_sections", "multimodal rotary positions")
    keys.refuse("nextn_predict_layers", "layers that predict further tokens")
    return read_hparams(keys, pairing="interleaved")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Decoder layer with norms before and after each block: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    mixed = attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope)
    x = g.add(x, norm(g, mixed, hp, w, "post_attention_norm"))
    y = feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer)
    return g.add(x, norm(g, y, hp, w, "post_ffw_norm"))
