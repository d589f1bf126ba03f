"""GPT-2 and StarCoder (arXiv:2305.06161): learned positions, layer norms, a gelu network without a gate."""

from ggpy.errors import ConfigError
from ggpy.graph.ops import Graph, Op
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, embed, layers, norm, output, plain_feed_forward
from ggpy.models.weights import Weights


def hparams(keys: Keys) -> HParams:
    return read_hparams(keys, pairing="neox", norm="layer")


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    if n_ctx > hp.n_ctx_train:
        raise ConfigError(f"n_ctx={n_ctx:,}: {hp.arch} has learned positions for {hp.n_ctx_train:,} tokens; "
                          "choose a context of at most that")
    positions = g.embed(weights.get("position_embd.weight", hp.n_ctx_train, hp.n_embd), index="position")
    x: Op = g.add(embed(g, hp, weights), positions)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope=None))
    return g.add(x, plain_feed_forward(g, norm(g, x, hp, w, "ffn_norm"), layer, "gelu"))
