"""The part of keys that all tokens have in common, which a cache of few bits leaves out.

softmax over t of q . k[t] stays the same when one vector c is taken off every k[t]: all scores of a query lose q . c.
Some models (Qwen 2) have keys with biases of 200, while what tells one token from another is about 1; the scale of a
block of integers would be spent on the bias. So c is the bias as rope turns it, averaged over positions: dimensions
that hardly turn lose all of it, those that turn quickly nothing.
"""

import numpy as np
from numpy.typing import NDArray

from ggpy.formats import dequantize
from ggpy.graph.ops import Attention, Linear, Rope

N_POSITIONS = 4096      # averaged over; any number is right, this one leaves small keys at common lengths


def key_offset(op: Attention) -> NDArray[np.float32] | None:
    """c (n_head_kv, head_dim_k), or None: keys without a bias, or scores whose zero has a meaning (softcap, sinks)."""
    source = op.inputs[1]
    rope = source if isinstance(source, Rope) else None
    linear = source if rope is None else rope.inputs[0]
    if op.softcap is not None or op.sinks is not None or not isinstance(linear, Linear) or linear.bias is None:
        return None
    bias = dequantize(linear.bias.rows(), linear.bias.type).reshape(op.n_head_kv, op.head_dim_k).astype(np.float64)
    offset = bias.copy()
    if rope is not None:
        turns = np.exp(1j * np.arange(N_POSITIONS)[:, None] * rope.table.inv_freq).mean(axis=0) * rope.table.magnitude
        first, second = rope.pairs
        turned = (bias[:, first] + 1j * bias[:, second]) * turns
        offset[:, first], offset[:, second] = turned.real, turned.imag
    return offset.astype(np.float32)
