"""Rotary position embeddings: from metadata to a table of frequencies. Scalings follow llama.cpp (rope in ggml-cpu)."""

import math

import numpy as np
from numpy.typing import NDArray

from ggpy.errors import GGUFError
from ggpy.formats import dequantize
from ggpy.graph.ops import RopeTable
from ggpy.models.hparams import RopeHParams
from ggpy.models.weights import Weights


def rope_table(rope: RopeHParams, weights: Weights, n_ctx: int) -> RopeTable:
    """The table of full-attention layers in a context of `n_ctx` tokens.

    `rope_freqs.weight` (Llama 3) or, by whether n_ctx exceeds the original context, `rope_factors_long.weight` or
    `rope_factors_short.weight` (LongRoPE) divide the frequencies one by one.
    """
    freq = base_frequencies(rope.n_rot, rope.freq_base) / frequency_factors(rope, weights, n_ctx)
    if rope.scaling == "yarn":
        return RopeTable(inv_freq=yarn(freq, rope), magnitude=yarn_magnitude(rope))
    factor = 1.0 if rope.scaling == "none" else rope.factor
    return RopeTable(inv_freq=freq / factor, magnitude=rope.attn_factor)


def unscaled_table(rope: RopeHParams) -> RopeTable:
    """The table of sliding-window layers that know nothing of the context's extension (gemma3, olmo2)."""
    return RopeTable(inv_freq=base_frequencies(rope.n_rot, rope.freq_base_window))


def base_frequencies(n_rot: int, base: float) -> NDArray[np.float64]:
    """base^(-2i / n_rot) for i in 0..n_rot/2-1."""
    return base ** (-np.arange(0, n_rot, 2, dtype=np.float64) / max(n_rot, 1))


def frequency_factors(rope: RopeHParams, weights: Weights, n_ctx: int) -> NDArray[np.float32]:
    """Divisors of the frequencies (n_rot / 2,): ones if the file has none."""
    long_or_short = "long" if n_ctx > rope.n_ctx_original else "short"
    for name in ("rope_freqs.weight", f"rope_factors_{long_or_short}.weight"):
        tensor = weights.find(name, rope.n_rot // 2)
        if tensor is not None:
            factors = dequantize(tensor.rows(), tensor.type).ravel()
            if not np.all(np.isfinite(factors) & (factors > 0)):
                raise GGUFError(f"{weights.gguf.path}: tensor {name!r}: found {factors.min()}, "
                                "expected positive numbers")
            return factors
    return np.ones(rope.n_rot // 2, np.float32)


def yarn(freq: NDArray[np.float64], rope: RopeHParams) -> NDArray[np.float64]:
    """YaRN (arXiv:2309.00071, section 3.2): fast dims keep their frequency, slow ones are divided by the factor."""

    def dim_that_turns(times: float) -> float:
        """Index of the pair of dims that turns `times` times within the original context."""
        return rope.n_rot * math.log(rope.n_ctx_original / (times * 2 * math.pi)) / (2 * math.log(rope.freq_base))

    low = max(0, math.floor(dim_that_turns(rope.beta_fast)))
    high = min(rope.n_rot - 1, math.ceil(dim_that_turns(rope.beta_slow)))
    slow = np.clip((np.arange(len(freq)) - low) / max(0.001, high - low), 0, 1)
    return freq / rope.factor * slow + freq * (1 - slow)


def yarn_magnitude(rope: RopeHParams) -> float:
    """Scores sharpen as the context is extended: 0.1 ln(factor) + 1, over the same with the model's own multiplier."""
    magnitude = mscale(rope.factor)
    if rope.log_multiplier:
        magnitude /= mscale(rope.factor, rope.log_multiplier)
    return magnitude * rope.attn_factor


def mscale(factor: float, multiplier: float = 1.0) -> float:
    return 0.1 * multiplier * math.log(factor) + 1 if factor > 1 else 1.0
