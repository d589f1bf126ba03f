"""GPT-NeoX and Pythia (arXiv:2204.06745): attention and a gelu network side by side, each with its own norm."""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, norm, plain_feed_forward
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox", norm="layer")
    return replace(hp, parallel_residual=keys.flag("use_parallel_residual", True))


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Decoder layer, x (n_tokens, n_embd) in and out; the network reads x itself, or x after attention."""
    hp, w = layer.hp, layer.w
    attended = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope))
    read = x if hp.parallel_residual else attended
    return g.add(attended, plain_feed_forward(g, norm(g, read, hp, w, "ffn_norm"), layer, "gelu"))
