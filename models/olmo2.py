"""OLMo 2 (arXiv:2501.00656) and 3: norms after the blocks instead of before, and one RMS norm over all of q and k.

OLMo 3 slides on three of four layers, and only its full layers know of the context's extension.
"""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, embed, feed_forward, layers, norm, output
from ggpy.models.rope import rope_table, unscaled_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox", window_period=4)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    rope_full, rope_window = rope_table(hp.rope, weights, n_ctx), unscaled_table(hp.rope)
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope_window if layer.slides else rope_full)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Post-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, norm(g, attention(g, x, layer, rope, qk_norm="row"), hp, w, "post_attention_norm"))
    return g.add(x, norm(g, feed_forward(g, x, layer), hp, w, "post_ffw_norm"))
