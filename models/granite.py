"""Granite 3, dense and with experts, and MiniCPM: Llama's form with scales on embeddings, residuals and logits (µP)."""

import math
from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import MAX_WIDTH, HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, feed_forward_or_experts, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="interleaved")
    if keys.arch == "minicpm":           # files made before the keys existed have MiniCPM's own scales
        embedding, residual, logit = 12.0, 1.4 / math.sqrt(hp.n_layer), 256 / hp.n_embd
    else:
        embedding, residual, logit = 0.0, 0.0, None
    turns = keys.arch == "minicpm" or keys.flag("rope.scaling.finetuned", True)
    return replace(
        hp, n_ff_expert=hp.n_ff[0],
        n_ff_shared=keys.integer("expert_shared_feed_forward_length", 0, low=0, high=MAX_WIDTH),
        rope=hp.rope if turns else replace(hp.rope, n_rot=0),
        attention_scale=keys.number("attention.scale", 0.0, low=0, high=1e6) or hp.attention_scale,
        embedding_scale=keys.number("embedding_scale", embedding, low=0, high=1e6) or 1.0,
        residual_scale=keys.number("residual_scale", residual, low=0, high=1e6) or 1.0,
        logit_scale=1 / keys.number("logit_scale", logit, low=1e-6, high=1e6))


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer with scaled residuals: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    mixed = attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope)
    x = g.add(x, g.scale(mixed, hp.residual_scale))
    y = feed_forward_or_experts(g, norm(g, x, hp, w, "ffn_norm"), layer)
    return g.add(x, g.scale(y, hp.residual_scale))
