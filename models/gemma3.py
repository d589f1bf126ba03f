"""Gemma 3 (arXiv:2503.19786): five sliding layers for each full one, with rope bases of their own, and QK norm."""

import math
from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, embed, feed_forward, layers, norm, output
from ggpy.models.rope import rope_table, unscaled_table
from ggpy.models.weights import Weights

N_LAYER_27B = 62                     # scales scores by n_embd / n_head, not by head size; no key says so


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox", window_period=6, default_freq_base_window=10_000.0)
    score_dim = hp.n_embd // hp.n_head[0] if hp.n_layer == N_LAYER_27B else hp.head_dim_k
    return replace(
        hp, embedding_scale=math.sqrt(hp.n_embd), attention_scale=1 / math.sqrt(max(score_dim, 1)),
        final_softcap=keys.number("final_logit_softcapping", 0.0, low=0, high=1e6) or None)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    rope_full, rope_window = rope_table(hp.rope, weights, n_ctx), unscaled_table(hp.rope)
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope_window if layer.slides else rope_full)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Decoder layer with norms before and after each block: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    mixed = attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope, qk_norm="head")
    x = g.add(x, norm(g, mixed, hp, w, "post_attention_norm"))
    y = feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer, "gelu")
    return g.add(x, norm(g, y, hp, w, "post_ffw_norm"))
