"""Llama 1 to 3 and the many models of its form: Mistral, Mixtral, Phi-3, InternLM2, EXAONE 3, ERNIE 4.5.

Pre-norm layers of attention with rotary positions and a silu-gated network, or a mixture of such networks
(Mixtral, arXiv:2401.04088). Biases, tied embeddings, fused weights and rope scalings are used where the file has them.
"""

from dataclasses import replace

from ggpy.graph.ops import Graph, Op, RopeTable
from ggpy.models.hparams import HParams, Keys, read_hparams
from ggpy.models.layers import Layer, attention, embed, feed_forward_or_experts, layers, norm, output
from ggpy.models.rope import rope_table
from ggpy.models.weights import Weights

NEOX = ("exaone", "phi3")            # the others rotate pairs of dims side by side


def hparams(keys: Keys) -> HParams:
    hp = read_hparams(keys, pairing="neox" if keys.arch in NEOX else "interleaved")
    return replace(hp, n_ff_expert=hp.n_ff[0])       # Mixtral's experts are as wide as a dense network


def build(g: Graph, hp: HParams, weights: Weights, n_ctx: int) -> None:
    rope = rope_table(hp.rope, weights, n_ctx)
    rope_q = with_temperature(rope, hp)
    x = embed(g, hp, weights)
    for layer in layers(hp, weights):
        x = decoder_layer(g, x, layer, rope, rope_q)
    output(g, x, hp, weights)


def decoder_layer(g: Graph, x: Op, layer: Layer, rope: RopeTable, rope_q: RopeTable) -> Op:
    """Pre-norm decoder layer: x (n_tokens, n_embd) in, same shape out."""
    hp, w = layer.hp, layer.w
    x = g.add(x, attention(g, norm(g, x, hp, w, "attn_norm"), layer, rope, rope_q=rope_q))
    return g.add(x, feed_forward_or_experts(g, norm(g, x, hp, w, "ffn_norm"), layer))


def with_temperature(rope: RopeTable, hp: HParams) -> RopeTable:
    """The table of queries that grow with their position; `rope` itself where the model has no such temperature."""
    if not hp.temperature_scale:
        return rope
    return replace(rope, temperature=hp.temperature_scale, temperature_period=hp.rope.n_ctx_original)
