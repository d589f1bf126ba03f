"""Gemma (arXiv:2403.08295): Llama's form with embeddings scaled by sqrt(n_embd) and a gelu-gated network."""

import math
from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, feed_forward, norm
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox")
    return replace(hp, embedding_scale=math.sqrt(hp.n_embd))


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope))
    return g.add(x, feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer, "gelu"))
