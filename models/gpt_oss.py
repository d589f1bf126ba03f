"""gpt-oss (arXiv:2508.10925): experts with biases and a clamped gate, attention sinks, every other layer slides."""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, experts, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox", needs_experts=True, window_period=2)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer; the file calls the second norm post_attention_norm."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope, sinks=True))
    normed = norm(g, x, hp, w, "post_attention_norm")
    return g.add(x, experts(g, normed, layer, act="swiglu_oai", scoring="softmax_after", normalise=False))
