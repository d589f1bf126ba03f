"""SmolLM3: Llama's form, with no positions in every fourth layer (NoPE, arXiv:2501.18795)."""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, embed, feed_forward, layers, norm, output
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights

NOPE_PERIOD = 4


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="interleaved")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    rope = rope_table(hp.rope, weights, n_ctx)
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope if (layer.index + 1) % NOPE_PERIOD else None)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable | None) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope))
    return g.add(x, feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer))
