"""Samplers that end a chain: the draw, Mirostat and adaptive_p."""

import math

import numpy as np

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_candidates import ADAPTIVE, CANDIDATES, DRAW, KEEP, LANES, MIROSTAT
from ggpy.kernels.cpu.sample_order import largest, own_logits
from ggpy.kernels.cpu.sample_random import next_double
from ggpy.kernels.cpu.sample_simd import bits_greater, call, load_f64, lowest_bit, store_f64
from ggpy.kernels.cpu.simd import (
    absolute,
    load_f32,
    load_first,
    load_i64,
    select_less,
    splat_f32x16,
    store,
    store_f32,
    store_i64,
)

TINY = 5e-324           # the smallest number above 0
LN2 = math.log(2)
HEAD = 100              # most probable tokens from which Mirostat 1 estimates the distribution
WIDTH, PEAK, SHARPNESS = 0.3, 5.0, 10.0     # of adaptive_p's curve
INF = float("inf")


@kernel
def draw(args, candidates, how, unused):
    """Chooses the first candidate whose running sum of probabilities, in order, reaches a random part of the total.

    Without a finite logit there is nothing to choose from.
    """
    call(candidates, CANDIDATES.weigh, 0, 0)
    total = load_f64(candidates + CANDIDATES.total)
    if not total >= 1.0:
        store_i64(candidates + CANDIDATES.is_broken, 1)
        return
    number = 0.0
    if load_i64(args + DRAW.needs_two) == 0 or load_i64(candidates + CANDIDATES.n) > 1:
        number = next_double(load_i64(args + DRAW.random))
    store_f64(candidates + CANDIDATES.target, max(total * number, TINY))
    call(candidates, CANDIDATES.reach, 0, 0)


@kernel
def mirostat_1(args, candidates, how, unused):
    """The k most probable, k from an estimate of how steeply probabilities fall with rank (Basu et al., 2021)."""
    call(candidates, CANDIDATES.sort, 0, 0)
    head, products, squares = load_i64(candidates + CANDIDATES.chances), 0.0, 0.0
    fill_head(head, load_i64(candidates + CANDIDATES.logits), load_i64(candidates + CANDIDATES.n))
    for i in range(1, HEAD):
        above, logit = load_f32(head + 4 * i - 4), load_f32(head + 4 * i)
        if logit > -INF:                    # a token that cannot come says nothing of the slope
            t = math.log((i + 1) / i)
            products += t * (above - logit)
            squares += t * t
    k = 1
    if squares > 0.0:
        log_n = math.log(load_i64(candidates + CANDIDATES.n_vocab))
        k = n_considered(products / squares, load_f64(args + MIROSTAT.mu), log_n)
    call(candidates, CANDIDATES.first, k, 0)


@device
def fill_head(head, logits, n):
    """The HEAD largest of the floats logits (n,), falling, -inf where there are fewer."""
    for i in range(HEAD):
        store_f32(head + 4 * i, -INF)
    last = head + 4 * (HEAD - 1)
    for start in range(0, n, LANES):
        valid = (1 << min(n - start, LANES)) - 1
        larger = bits_greater(load_first(logits + 4 * start, n - start), splat_f32x16(load_f32(last))) & valid
        while larger != 0:
            x = load_f32(logits + 4 * (start + lowest_bit(larger)))
            larger &= larger - 1
            at = last
            while at > head and load_f32(at - 4) < x:
                store_f32(at, load_f32(at - 4))
                at -= 4
            if load_f32(at) < x or at < last:
                store_f32(at, x)


@device
def n_considered(s, mu, log_n):
    """((e * 2^mu) / (1 - n^-e))^(1/s) with e = s - 1, whole, 1 at least; `s` of 0 or more is the slope."""
    e = s - 1.0
    # at e = 0 both parts are 0 and their quotient is 1 / log(n)
    log_power = mu * LN2 + (-math.log(log_n) if abs(e) < 1e-9 else math.log(e / (1.0 - math.exp(-e * log_n))))
    if s <= 0.0:
        return 1 << 50 if log_power > 0.0 else 1
    return max(1, int(math.exp(min(log_power / s, 34.0))))


@kernel
def mirostat_2(args, candidates, how, unused):
    """Those whose surprise, -log2 of the probability, is at most mu; one at least."""
    call(candidates, CANDIDATES.sort, 0, 0)
    call(candidates, CANDIDATES.weigh, 0, 0)
    logits, n = load_i64(candidates + CANDIDATES.logits), load_i64(candidates + CANDIDATES.n)
    most = largest(logits, n)
    cut = most + np.float32(math.log(load_f64(candidates + CANDIDATES.total)) - load_f64(args + MIROSTAT.mu) * LN2)
    if cut > most:
        call(candidates, CANDIDATES.first, 1, 0)
        return
    store_f32(candidates + CANDIDATES.cut, cut)
    store_i64(candidates + CANDIDATES.at, n)
    call(candidates, CANDIDATES.keep, logits, KEEP)


@kernel
def mirostat_learn(args, candidates, how, unused):
    """Moves mu by eta for each bit that the surprise of the chosen candidate is off tau."""
    weight = load_f32(load_i64(candidates + CANDIDATES.weights) + 4 * load_i64(candidates + CANDIDATES.at))
    probability = weight / load_f64(candidates + CANDIDATES.total)
    error = -math.log(probability) / LN2 - load_f64(args + MIROSTAT.tau)
    store_f64(args + MIROSTAT.mu, load_f64(args + MIROSTAT.mu) - load_f64(args + MIROSTAT.eta) * error)


@kernel
def adaptive(args, candidates, how, unused):
    """Prefers candidates with a probability near a target, so that those chosen average to it over time.

    The new logit is PEAK - SHARPNESS * d^2 / (1 + d), d = |p - target| / WIDTH: near the target a parabola, far from
    it a line. The target is off to the other side by as much as the decaying average of the chosen probabilities is.
    """
    call(candidates, CANDIDATES.weigh, 0, 0)
    logits, n = own_logits(candidates), load_i64(candidates + CANDIDATES.n)
    weights, chances = load_i64(candidates + CANDIDATES.weights), load_i64(candidates + CANDIDATES.chances)
    total = splat_f32x16(load_f64(candidates + CANDIDATES.total))
    average = load_f64(args + ADAPTIVE.weighted_sum) / load_f64(args + ADAPTIVE.total_weight)
    target = splat_f32x16(min(max(2.0 * load_f64(args + ADAPTIVE.target) - average, 0.0), 1.0))
    for i in range(0, n, LANES):
        chance = load_first(weights + 4 * i, LANES) / total
        store(chances + 4 * i, chance)
        d = absolute(chance - target) / WIDTH
        values = load_first(logits + 4 * i, LANES)
        curve = splat_f32x16(PEAK) - d * SHARPNESS * d / (d + 1.0)
        store(logits + 4 * i, select_less(splat_f32x16(-INF), values, curve, values))


@kernel
def adaptive_learn(args, candidates, how, unused):
    """Adds the probability that the chosen candidate had to the decaying average."""
    chance = load_f32(load_i64(candidates + CANDIDATES.chances) + 4 * load_i64(candidates + CANDIDATES.at))
    decay = load_f64(args + ADAPTIVE.decay)
    store_f64(args + ADAPTIVE.weighted_sum, chance + decay * load_f64(args + ADAPTIVE.weighted_sum))
    store_f64(args + ADAPTIVE.total_weight, 1.0 + decay * load_f64(args + ADAPTIVE.total_weight))
