"""Command R and R7B (Cohere): attention and a silu-gated network side by side on one norm; logits are scaled.

R7B (cohere2) slides on three of four layers, and its full layers have no positions.
"""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, QkNorm, attention, embed, feed_forward, layers, norm, output
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    window_period = 4 if keys.arch == "cohere2" else None
    hp = read_hparams(keys, pairing="interleaved", norm="layer", window_period=window_period)
    return replace(hp, logit_scale=keys.number("logit_scale", 1.0, low=0, high=1e6) or 1.0)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    rope = rope_table(hp.rope, weights, n_ctx)
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope if layer.slides or hp.arch == "command-r" else None)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable | None) -> Op:
    """Parallel decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    normed = norm(g, x, hp, w, "attn_norm")
    qk_norm: QkNorm = "head" if w.has("attn_q_norm.weight") else "none"      # Command R+
    attended = g.add(x, attention(g, normed, layer, rope, qk_norm=qk_norm))
    return g.add(attended, feed_forward(g, normed, layer))
