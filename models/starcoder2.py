"""StarCoder 2 (arXiv:2402.19173) and Nemotron 4 (arXiv:2402.16819): layer norms, rotary positions, no gate."""

from ggpy.graph.ops import ActivationKind, Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, decoder, norm, plain_feed_forward
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights

ACTIVATION: dict[str, ActivationKind] = {"starcoder2": "gelu", "nemotron": "relu_squared"}


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox", norm="layer")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    decoder(g, hp, weights, decoder_layer, rope_table(hp.rope, weights, n_ctx))


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope))
    return g.add(x, plain_feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer, ACTIVATION[hp.arch]))
