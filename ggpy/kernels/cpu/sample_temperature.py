"""The temperature: fixed, or following the entropy."""

import math

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_order import largest
from ggpy.kernels.cpu.sample_pool import DYNAMIC, POOL, TEMPERATURE
from ggpy.kernels.cpu.sample_simd import call, load_f64, sum_products
from ggpy.kernels.cpu.simd import (
    keep_first,
    load_f32,
    load_first,
    load_i64,
    maximum,
    minimum,
    splat_f32x16,
    store,
    store_i64,
)

LANES = 16
LARGEST = 3.4028234663852886e38
SURELY_0 = 1000.0       # a logit this far below the best has no probability


@device
def divide(pool, value):
    """Logits divided by the value, which is more than 0; what is too large then stays finite."""
    n, logits, own = load_i64(pool + POOL.n), load_i64(pool + POOL.logits), load_i64(pool + POOL.own_logits)
    keys = load_i64(pool + POOL.keys)
    value = splat_f32x16(value)
    for i in range(0, n, LANES):
        x = load_first(logits + 4 * i, n - i)
        if keys == own:
            store(load_i64(pool + POOL.own_keys) + 4 * i, x)
        store(own + 4 * i, minimum(x / value, splat_f32x16(LARGEST)))
    store_i64(pool + POOL.logits, own)
    if keys == own:
        store_i64(pool + POOL.keys, load_i64(pool + POOL.own_keys))


@kernel
def fixed(args, pool, how, unused):
    """Logits divided by a value above 0."""
    divide(pool, load_f32(args + TEMPERATURE.value))


@kernel
def dynamic(args, pool, how, unused):
    """A temperature from `low` to `high` that rises with the entropy of the candidates.

    The entropy counts as a part, from 0 to 1, of what it would be if all candidates were as probable; that part to the
    power of `exponent` is the place in the range.
    """
    n = load_i64(pool + POOL.n)
    if n <= 1:
        return
    call(pool, POOL.sort, 0, 0)
    call(pool, POOL.weigh, 0, 0)
    logits, weights, total = load_i64(pool + POOL.logits), load_i64(pool + POOL.weights), load_f64(pool + POOL.total)
    most, mean = splat_f32x16(largest(logits, n)), 0.0
    for i in range(0, n, LANES):
        below = maximum(load_first(logits + 4 * i, n - i) - most, splat_f32x16(-SURELY_0))
        mean += sum_products(keep_first(load_first(weights + 4 * i, n - i), n - i, splat_f32x16(0.0)), below)
    entropy = math.log(total) - mean / total            # -log of a probability is log(total) less the logit
    part = max(0.0, entropy / math.log(n))
    low, high = load_f64(args + DYNAMIC.low), load_f64(args + DYNAMIC.high)
    value = low + (high - low) * math.pow(part, load_f64(args + DYNAMIC.exponent))
    if value > 0.0:
        divide(pool, value)
    else:
        call(pool, POOL.best, 0, 0)
