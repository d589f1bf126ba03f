"""The temperature: fixed, or following the entropy."""

import math

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, DYNAMIC, LANES, LARGEST, TEMPERATURE
from ggpy.kernels.cpu.sample_order import best_and_mean
from ggpy.kernels.cpu.sample_simd import call, load_f64
from ggpy.kernels.cpu.simd import (
    load_f32,
    load_first,
    load_i64,
    minimum,
    splat_f32x16,
    store,
    store_i64,
)


@device
def divide(candidates, value):
    """Logits divided by the value, which is more than 0; what is too large then stays finite."""
    n, logits = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits)
    own = load_i64(candidates + CANDIDATES.own_logits)
    keys = load_i64(candidates + CANDIDATES.keys)
    value = splat_f32x16(value)
    for i in range(0, n, LANES):
        x = load_first(logits + 4 * i, n - i)
        if keys == own:
            store(load_i64(candidates + CANDIDATES.own_keys) + 4 * i, x)
        store(own + 4 * i, minimum(x / value, splat_f32x16(LARGEST)))
    store_i64(candidates + CANDIDATES.logits, own)
    if keys == own:
        store_i64(candidates + CANDIDATES.keys, load_i64(candidates + CANDIDATES.own_keys))


@kernel
def fixed(args, candidates, how, unused):
    """Logits divided by a value above 0."""
    divide(candidates, load_f32(args + TEMPERATURE.value))


@kernel
def dynamic(args, candidates, how, unused):
    """A temperature from `low` to `high` that rises with the entropy of the candidates.

    The entropy counts as a part, from 0 to 1, of what it would be if all candidates were as probable; that part to the
    power of `exponent` is the place in the range.
    """
    n = load_i64(candidates + CANDIDATES.n)
    if n <= 1:
        return
    call(candidates, CANDIDATES.sort, 0, 0)
    call(candidates, CANDIDATES.weigh, 0, 0)
    _, mean = best_and_mean(candidates)
    entropy = math.log(load_f64(candidates + CANDIDATES.total)) - mean      # of -log(probability) = log(total) - logit
    part = max(0.0, entropy / math.log(n))
    low, high = load_f64(args + DYNAMIC.low), load_f64(args + DYNAMIC.high)
    value = low + (high - low) * math.pow(part, load_f64(args + DYNAMIC.exponent))
    if value > 0.0:
        divide(candidates, value)
    else:
        call(candidates, CANDIDATES.best, 0, 0)
