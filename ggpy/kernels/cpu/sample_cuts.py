"""Samplers that leave only some of the candidates. `min_keep` is how many at least."""

import math

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_candidates import (
    CANDIDATES,
    FEW,
    KEEP,
    LANES,
    MIN_P,
    OTHERS,
    TOP_K,
    TOP_N_SIGMA,
    TOP_P,
    TYPICAL,
    XTC,
)
from ggpy.kernels.cpu.sample_order import best_and_mean, largest, own_logits
from ggpy.kernels.cpu.sample_random import next_float
from ggpy.kernels.cpu.sample_simd import (
    bits_at_least,
    bits_greater,
    call,
    count_bits,
    load_f64,
    lowest_bit,
    store_f64,
    sum_f64,
    sum_products,
)
from ggpy.kernels.cpu.simd import (
    absolute,
    keep_first,
    load_f32,
    load_first,
    load_i64,
    maximum,
    select_less,
    splat_f32x16,
    store,
    store_f32,
    store_i32,
    store_i64,
)

INF = float("inf")
GROUPS_PER_TOKEN = 4    # of those that top_k is to leave, in which it first looks for a maximum each


@kernel
def top_k(args, candidates, how, unused):
    """The k most probable.

    k groups with a maximum of at least t hold k logits of at least t, so the k-th largest of more maxima is a bound
    that few logits reach; finding it takes one pass.
    """
    k, n = load_i64(args + TOP_K.k), load_i64(candidates + CANDIDATES.n)
    n_vectors = (k * GROUPS_PER_TOKEN + LANES - 1) // LANES      # of maxima
    size = n // (n_vectors * LANES)                              # of a group
    if size > 1 and load_i64(candidates + CANDIDATES.keys) == 0:
        logits = load_i64(candidates + CANDIDATES.logits)
        cut = candidates + CANDIDATES.cut
        store_f32(cut, bound(logits, size, n_vectors, k, load_i64(candidates + CANDIDATES.weights), cut))
        store_i64(candidates + CANDIDATES.at, n)
        call(candidates, CANDIDATES.keep, logits, KEEP)
        if load_i64(candidates + CANDIDATES.n) > FEW:
            drop_ties(candidates, k)
    call(candidates, CANDIDATES.sort, 0, 0)
    if k <= FEW and load_i64(candidates + CANDIDATES.keys) != 0:
        call(candidates, CANDIDATES.settle, 0, 0)
    if load_i64(candidates + CANDIDATES.keys) == 0:
        store_i64(candidates + CANDIDATES.n, min(n, k, load_i64(candidates + CANDIDATES.n)))
    else:
        call(candidates, CANDIDATES.first, k, 0)


@device
def drop_ties(candidates, k):
    """Of candidates that all reach `cut`, those above it and as many of the first others as it takes for k stay."""
    logits, at = load_i64(candidates + CANDIDATES.logits), -1
    store_i64(candidates + CANDIDATES.at, at)
    call(candidates, CANDIDATES.count, logits, 0)
    missing = k - load_i64(candidates + CANDIDATES.n_kept)
    while missing > 0:
        at += 1
        missing -= 1 if load_f32(logits + 4 * at) == load_f32(candidates + CANDIDATES.cut) else 0
    store_i64(candidates + CANDIDATES.at, at)
    call(candidates, CANDIDATES.keep, logits, KEEP)


@device
def bound(x, size, n_vectors, k, maxima, spare):
    """The k-th largest of the maxima of 16 * n_vectors groups of `size` of the floats x.

    Found bit by bit among the numbers whose bits rise with a float; `spare` is memory of a float32.
    """
    for i in range(n_vectors):
        store(maxima + 64 * i, splat_f32x16(-INF))
    for i in range(0, n_vectors * size, n_vectors):         # a group has members from everywhere
        for j in range(n_vectors):
            at = maxima + 64 * j
            store(at, maximum(load_first(x + 64 * (i + j), LANES), load_first(at, LANES)))
    low, high = -0x7F800001, 0x7F800000         # -inf and inf; the bound is at least `low` and less than `high`
    while high - low > 1:
        middle = (low + high) >> 1
        store_i32(spare, middle ^ ((middle >> 31) & 0x7FFFFFFF))
        candidate, count = splat_f32x16(load_f32(spare)), 0
        for i in range(n_vectors):
            count += count_bits(bits_at_least(load_first(maxima + 64 * i, LANES), candidate))
        if count >= k:
            low = middle
        else:
            high = middle
    store_i32(spare, low ^ ((low >> 31) & 0x7FFFFFFF))
    return load_f32(spare)


@kernel
def top_p(args, candidates, how, unused):
    """The most probable that add up to p.

    Where min_p comes next, what that will remove need not be put in order here.
    """
    call(candidates, CANDIDATES.sort, 0, 0)
    call(candidates, CANDIDATES.weigh, 0, 0)
    store_f64(candidates + CANDIDATES.target, load_f64(args + TOP_P.p) * load_f64(candidates + CANDIDATES.total))
    if load_i64(candidates + CANDIDATES.keys) != 0 and load_i64(args + TOP_P.has_floor) != 0:
        keep_above(candidates, load_f32(args + TOP_P.log_floor), 0)
        call(candidates, CANDIDATES.weigh, 0, 0)
    keep_reached(candidates, load_i64(args + TOP_P.min_keep))


@device
def keep_reached(candidates, min_keep):
    """Only the candidates up to the one at which the running sum reaches `target` stay, at least `min_keep`."""
    call(candidates, CANDIDATES.reach, 0, 0)
    keys = load_i64(candidates + CANDIDATES.keys)
    if keys == 0:
        n_reached = load_i64(candidates + CANDIDATES.at) + 1
        store_i64(candidates + CANDIDATES.n, min(load_i64(candidates + CANDIDATES.n), max(n_reached, min_keep)))
        return
    if min_keep > 1:
        call(candidates, CANDIDATES.count, keys, 0)
        if load_i64(candidates + CANDIDATES.n_kept) < min_keep:
            call(candidates, CANDIDATES.first, min_keep, 0)
            return
    call(candidates, CANDIDATES.keep, keys, KEEP)


@device
def keep_above(candidates, log_p, min_keep):
    """Only logits that are at most -log_p below the best stay, at least `min_keep`."""
    logits, n = load_i64(candidates + CANDIDATES.logits), load_i64(candidates + CANDIDATES.n)
    store_f32(candidates + CANDIDATES.cut, largest(logits, n) + log_p)
    store_i64(candidates + CANDIDATES.at, n)
    if min_keep > 1:
        call(candidates, CANDIDATES.count, logits, 0)
        if load_i64(candidates + CANDIDATES.n_kept) < min_keep:
            call(candidates, CANDIDATES.sort, 0, 0)
            call(candidates, CANDIDATES.first, min_keep, 0)
            return
    call(candidates, CANDIDATES.keep, logits, KEEP)


@kernel
def min_p(args, candidates, how, unused):
    """Those at least e^log_p times as probable as the best."""
    keep_above(candidates, load_f32(args + MIN_P.log_p), load_i64(args + MIN_P.min_keep))


@kernel
def typical(args, candidates, how, unused):
    """Those whose information, -log of the probability, is nearest to the average and that add up to more than p.

    They stand in the order of that distance from now on. Since information is a constant less the logit, the distance
    is that of the logit from the average one (Meister et al., Locally Typical Sampling, 2022).
    """
    call(candidates, CANDIDATES.weigh, 0, 0)
    n, logits = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits)
    total = load_f64(candidates + CANDIDATES.total)
    best, mean = best_and_mean(candidates)
    most, center = splat_f32x16(best), splat_f32x16(mean)
    distances = load_i64(candidates + CANDIDATES.own_keys)
    for i in range(0, n, LANES):
        away = absolute((load_first(logits + 4 * i, n - i) - most) - center)
        store(distances + 4 * i, splat_f32x16(0.0) - away)
    store_i64(candidates + CANDIDATES.keys, 0)          # equal distances stand as in memory
    call(candidates, CANDIDATES.sort, distances, 0)
    if n <= FEW:                            # they may have moved
        call(candidates, CANDIDATES.weigh, 0, 0)
    store_f64(candidates + CANDIDATES.target, load_f64(args + TYPICAL.p) * total)
    keep_reached(candidates, load_i64(args + TYPICAL.min_keep))


@kernel
def top_n_sigma(args, candidates, how, unused):
    """Logits within n standard deviations of the best. The others become -inf and stay."""
    n, minus_inf, zero = load_i64(candidates + CANDIDATES.n), splat_f32x16(-INF), splat_f32x16(0.0)
    if n <= 1:
        return
    logits = own_logits(candidates)
    best = largest(logits, n)
    most = splat_f32x16(best)
    count, total, squares = 0, 0.0, 0.0
    for i in range(0, n, LANES):
        below = keep_first(load_first(logits + 4 * i, n - i) - most, n - i, minus_inf)
        count += count_bits(bits_greater(below, minus_inf))
        below = select_less(minus_inf, below, below, zero)
        total += sum_f64(below)
        squares += sum_products(below, below)
    deviation = math.sqrt(max(squares / count - (total / count) * (total / count), 0.0))
    bound = splat_f32x16(best - load_f32(args + TOP_N_SIGMA.n) * deviation)
    for i in range(0, n, LANES):
        values = load_first(logits + 4 * i, n - i)
        store(logits + 4 * i, select_less(values, bound, minus_inf, values))


@kernel
def xtc(args, candidates, how, unused):
    """Exclude top choices: by chance, of those that reach `threshold`, only the last stays."""
    n = load_i64(candidates + CANDIDATES.n)
    if n < 2 or next_float(load_i64(args + XTC.random)) > load_f32(args + XTC.probability):
        return
    call(candidates, CANDIDATES.sort, 0, 0)
    call(candidates, CANDIDATES.weigh, 0, 0)
    weights, total = load_i64(candidates + CANDIDATES.weights), splat_f32x16(load_f64(candidates + CANDIDATES.total))
    keys, threshold = load_i64(candidates + CANDIDATES.keys), splat_f32x16(load_f32(args + XTC.threshold))
    keys = load_i64(candidates + CANDIDATES.logits) if keys == 0 else keys
    n_out, last = -1, -1                    # the last in order of those that reach the threshold
    for i in range(0, n, LANES):
        chances = keep_first(load_first(weights + 4 * i, n - i) / total, n - i, splat_f32x16(-1.0))
        reaching = bits_at_least(chances, threshold)
        n_out += count_bits(reaching)
        while reaching != 0:
            at = i + lowest_bit(reaching)
            reaching &= reaching - 1
            if last < 0 or load_f32(keys + 4 * at) <= load_f32(keys + 4 * last):
                last = at
    if n_out > 0 and n - n_out >= load_i64(args + XTC.min_keep):
        store_f32(candidates + CANDIDATES.cut, load_f32(keys + 4 * last))
        store_i64(candidates + CANDIDATES.at, last - 1)
        call(candidates, CANDIDATES.keep, keys, OTHERS)
