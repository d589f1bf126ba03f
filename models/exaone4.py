"""EXAONE 4 (arXiv:2507.11407): norms after the blocks, QK norm; in the 32B three of four layers slide.

There the full layers have no positions at all.
"""

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import MAX_LAYERS, HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, embed, feed_forward, layers, norm, output
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights

N_LAYER_32B = 64                     # the one size with sliding layers; the window key alone does not tell


def hparams(keys: Keys) -> HParams:
    if keys.integer("block_count", high=MAX_LAYERS) == N_LAYER_32B:
        return read_hparams(keys, pairing="neox", window_period=4, default_window=4096)
    return read_hparams(keys, pairing="neox")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    rope = rope_table(hp.rope, weights, n_ctx)
    any_slides = any(hp.window)
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope if layer.slides or not any_slides else None)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable | None) -> Op:
    """Post-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, norm(g, attention(g, x, layer, rope, qk_norm="head"), hp, w, "post_attention_norm"))
    return g.add(x, norm(g, feed_forward(g, x, layer), hp, w, "post_ffw_norm"))
