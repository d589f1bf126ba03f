"""Gemma 2 (arXiv:2408.00118): every other layer slides, a norm after each block too, soft-capped scores and logits."""

import math
from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, feed_forward, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights

N_LAYER_27B = 46                     # scales scores by n_embd / n_head, not by head size; no key says so


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox", window_period=2, default_window=4096)
    score_dim = hp.n_embd // hp.n_head[0] if hp.n_layer == N_LAYER_27B else hp.head_dim_k
    return replace(
        hp, embedding_scale=math.sqrt(hp.n_embd), attention_scale=1 / math.sqrt(max(score_dim, 1)),
        attention_softcap=keys.number("attn_logit_softcapping", 50.0, low=0, high=1e6) or None,
        final_softcap=keys.number("final_logit_softcapping", 30.0, low=0, high=1e6) or None)


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Decoder layer with norms before and after each block: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    mixed = attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope)
    x = g.add(x, norm(g, mixed, hp, w, "post_attention_norm"))
    y = feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer, "gelu")
    return g.add(x, norm(g, y, hp, w, "post_ffw_norm"))
