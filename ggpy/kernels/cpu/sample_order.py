"""Candidates in order: weights, sorting as little as it takes, and finding a place. See `sample_candidates.py`.

The order is that of 64-bit integers: in the upper half one that rises as the key falls, then the place in memory.
"""

from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.sample_candidates import (
    CANDIDATES,
    FEW,
    KEEP,
    LANES,
    LARGEST,
    N_SLICES,
    OTHERS,
    SLICE_SUMS,
    SUM_BLOCK,
    SURELY_0,
)
from ggpy.kernels.cpu.sample_simd import (
    bits_at_least,
    bits_equal,
    bits_greater,
    call,
    count_bits,
    exp_nonpositive,
    load_f64,
    lowest_bit,
    store_f64,
    sum_f64,
    sum_products,
)
from ggpy.kernels.cpu.simd import (
    keep_first,
    lane_index,
    load_f32,
    load_first,
    load_i32,
    load_i32x16,
    load_i64,
    max_lanes,
    maximum,
    minimum,
    select_less,
    splat_f32x16,
    store,
    store_f32,
    store_i32,
    store_i64,
    to_i32,
)

ALL = (1 << LANES) - 1  # the bits of all lanes
INF = float("inf")
BYTE_VALUES = 256       # of a digit of the radix sort


@device
def largest(x, n):
    """The largest of the floats x (n,)."""
    most = splat_f32x16(-INF)
    for i in range(0, n, LANES):
        most = maximum(keep_first(load_first(x + 4 * i, n - i), n - i, splat_f32x16(-INF)), most)
    return max_lanes(most)


@device
def best_and_mean(candidates):
    """The best logit, and how far below it the candidates are on average, by their weights, 0 or less."""
    n, logits = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits)
    weights, best = load_i64(candidates + CANDIDATES.weights), largest(logits, n)
    most, sum_below = splat_f32x16(best), 0.0
    for i in range(0, n, LANES):
        below = maximum(load_first(logits + 4 * i, n - i) - most, splat_f32x16(-SURELY_0))
        sum_below += sum_products(keep_first(load_first(weights + 4 * i, n - i), n - i, splat_f32x16(0.0)), below)
    return best, sum_below / load_f64(candidates + CANDIDATES.total)


@device
def own_logits(candidates):
    """Makes the logits a copy that may be written to, which the keys are not; returns its address."""
    n, logits = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits)
    own = load_i64(candidates + CANDIDATES.own_logits)
    keys = load_i64(candidates + CANDIDATES.own_keys)
    if load_i64(candidates + CANDIDATES.keys) == own:
        for i in range(0, n, LANES):
            store(keys + 4 * i, load_first(own + 4 * i, n - i))
        store_i64(candidates + CANDIDATES.keys, keys)
    if logits != own:
        for i in range(0, n, LANES):
            store(own + 4 * i, load_first(logits + 4 * i, n - i))
        store_i64(candidates + CANDIDATES.logits, own)
    return own


@kernel
def best(args, candidates, how, unused):
    """Only the first in order stays, and if the order is that of memory, the first of the largest logits."""
    n, logits = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits)
    ids = load_i64(candidates + CANDIDATES.ids)
    keys = load_i64(candidates + CANDIDATES.keys)
    keys = logits if keys == 0 else keys
    most = largest(keys, n)
    at = 0
    while at < n and load_f32(keys + 4 * at) != most:
        group = bits_equal(load_first(keys + 4 * at, n - at), splat_f32x16(most))
        at += LANES if group == 0 else lowest_bit(group)
    if at >= n or not -LARGEST <= most <= LARGEST:
        store_i64(candidates + CANDIDATES.is_broken, 1)
        at = 0
    store_i32(load_i64(candidates + CANDIDATES.own_ids), at if ids == 0 else load_i32(ids + 4 * at))
    store_f32(load_i64(candidates + CANDIDATES.own_logits), load_f32(logits + 4 * at))
    store_i64(candidates + CANDIDATES.ids, load_i64(candidates + CANDIDATES.own_ids))
    store_i64(candidates + CANDIDATES.logits, load_i64(candidates + CANDIDATES.own_logits))
    store_i64(candidates + CANDIDATES.keys, 0)
    store_i64(candidates + CANDIDATES.n, 1)
    store_i64(candidates + CANDIDATES.at, 0)


@kernel
def weigh(args, candidates, how, unused):
    """Probabilities but for a common factor, e^(logit - best), their sums by blocks of SUM_BLOCK, and their total."""
    n, logits = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.logits)
    weights, sums = load_i64(candidates + CANDIDATES.weights), load_i64(candidates + CANDIDATES.sums)
    most = splat_f32x16(largest(logits, n))
    zero = splat_f32x16(0.0)
    total = 0.0
    for start in range(0, n, SUM_BLOCK):
        block = 0.0
        for i in range(start, min(n, start + SUM_BLOCK), LANES):
            weight = keep_first(exp_nonpositive(load_first(logits + 4 * i, n - i) - most), n - i, zero)
            store(weights + 4 * i, weight)
            block += sum_f64(weight)
        store_f64(sums + start // SUM_BLOCK * 8, block)
        total += block
    store_f64(candidates + CANDIDATES.total, total)


@kernel
def sort(by, candidates, how, unused):
    """From now on candidates stand by falling `by`, float32 (n,) or 0 for the logits; many of them by `keys` alone."""
    n = load_i64(candidates + CANDIDATES.n)
    if by == 0 and load_i64(candidates + CANDIDATES.is_sorted) != 0:
        return
    if load_i64(candidates + CANDIDATES.keys) != 0:
        call(candidates, CANDIDATES.settle, 0, 0)
    keys = load_i64(candidates + CANDIDATES.logits) if by == 0 else by
    store_i64(candidates + CANDIDATES.is_sorted, 1 if by == 0 else 0)
    i = 1
    while i < n and load_f32(keys + 4 * i) <= load_f32(keys + 4 * i - 4):
        i += 1
    if i < n:                               # else they stand so already
        store_i64(candidates + CANDIDATES.keys, keys)
        if n <= FEW:
            call(candidates, CANDIDATES.settle, 0, 0)


@kernel
def settle(args, candidates, how, unused):
    """Puts candidates that have keys into their order in memory."""
    n, keys = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.keys)
    pairs, spare = load_i64(candidates + CANDIDATES.pairs), load_i64(candidates + CANDIDATES.spare)
    for i in range(n):
        store_i64(pairs + 8 * i, pair(load_i32(keys + 4 * i), i))
    pairs, spare = sort_pairs(pairs, spare, n, load_i64(candidates + CANDIDATES.slices))
    logits, ids = load_i64(candidates + CANDIDATES.logits), load_i64(candidates + CANDIDATES.ids)
    for i in range(n):
        at = load_i64(pairs + 8 * i) & 0xFFFFFFFF
        store_i32(spare + 8 * i, at if ids == 0 else load_i32(ids + 4 * at))
        store_i32(spare + 8 * i + 4, load_i32(logits + 4 * at))
    logits, ids = load_i64(candidates + CANDIDATES.own_logits), load_i64(candidates + CANDIDATES.own_ids)
    for i in range(n):
        store_i32(ids + 4 * i, load_i32(spare + 8 * i))
        store_i32(logits + 4 * i, load_i32(spare + 8 * i + 4))
    store_i64(candidates + CANDIDATES.logits, logits)
    store_i64(candidates + CANDIDATES.ids, ids)
    store_i64(candidates + CANDIDATES.keys, 0)


@device
def pair(bits, at):
    """What stands for a key, given as the bits of a float32, and a place in memory: smaller ones come first."""
    if bits == -0x80000000:
        bits = 0                            # -0 is 0
    return ~(bits ^ ((bits >> 31) & 0x7FFFFFFF)) << 32 | at


@device
def sort_pairs(pairs, spare, n, places):
    """Sorts int64 (n,) by its upper halves, equal ones as they stand; returns where the result is and where it is not.

    A radix sort by bytes, without those in which all are equal.
    """
    i = 1
    while i < n and load_i64(pairs + 8 * i - 8) >> 32 <= load_i64(pairs + 8 * i) >> 32:
        i += 1
    shift = 32 if i < n else 64             # 64: they stand in order already
    while shift < 64:
        flip = 128 if shift == 56 else 0    # the sign is in the last byte
        for i in range(BYTE_VALUES):
            store_i64(places + 8 * i, 0)
        for i in range(n):
            at = places + 8 * (((load_i64(pairs + 8 * i) >> shift) & 255) ^ flip)
            store_i64(at, load_i64(at) + 1)
        place, most = 0, 0
        for i in range(BYTE_VALUES):
            count = load_i64(places + 8 * i)
            store_i64(places + 8 * i, place)
            place += count
            most = max(most, count)
        if most < n:
            for i in range(n):
                value = load_i64(pairs + 8 * i)
                at = places + 8 * (((value >> shift) & 255) ^ flip)
                store_i64(spare + 8 * load_i64(at), value)
                store_i64(at, load_i64(at) + 1)
            pairs, spare = spare, pairs
        shift += 8
    return pairs, spare


@device
def passing(x, i, n, cut, n_ties):
    """Which of the next 16 of the floats x (n,), from place i on, are above `cut`, or equal to it and before n_ties."""
    values = load_first(x + 4 * i, n - i)
    ties = (1 << min(max(n_ties - i, 0), LANES)) - 1
    return (bits_greater(values, cut) | (bits_equal(values, cut) & ties)) & ((1 << min(n - i, LANES)) - 1)


@kernel
def count(x, candidates, how, unused):
    """Sets `n_kept` to how many of the floats x (n,) are above `cut` or, up to place `at`, equal to it."""
    n, n_kept = load_i64(candidates + CANDIDATES.n), 0
    cut, n_ties = splat_f32x16(load_f32(candidates + CANDIDATES.cut)), load_i64(candidates + CANDIDATES.at) + 1
    for i in range(0, n, LANES):
        n_kept += count_bits(passing(x, i, n, cut, n_ties))
    store_i64(candidates + CANDIDATES.n_kept, n_kept)


@kernel
def keep(x, candidates, how, unused):
    """Only the candidates that `count` counts stay, or if `how` is OTHERS and not KEEP, only the others."""
    n, ids = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.ids)
    keys = load_i64(candidates + CANDIDATES.keys)
    logits, own_logits = load_i64(candidates + CANDIDATES.logits), load_i64(candidates + CANDIDATES.own_logits)
    own_ids, own_keys = load_i64(candidates + CANDIDATES.own_ids), load_i64(candidates + CANDIDATES.own_keys)
    cut, n_ties = splat_f32x16(load_f32(candidates + CANDIDATES.cut)), load_i64(candidates + CANDIDATES.at) + 1
    has_keys = keys != 0 and keys != logits
    m = 0
    for i in range(0, n, LANES):
        kept = passing(x, i, n, cut, n_ties)
        if how == OTHERS:
            kept ^= (1 << min(n - i, LANES)) - 1
        if kept == ALL:
            store(own_ids + 4 * m, lane_index() + i if ids == 0 else load_i32x16(ids + 4 * i))
            store(own_logits + 4 * m, load_first(logits + 4 * i, LANES))
            if has_keys:
                store(own_keys + 4 * m, load_first(keys + 4 * i, LANES))
            m += LANES
            kept = 0
        while kept != 0:
            at = i + lowest_bit(kept)
            kept &= kept - 1
            store_i32(own_ids + 4 * m, at if ids == 0 else load_i32(ids + 4 * at))
            store_i32(own_logits + 4 * m, load_i32(logits + 4 * at))
            if has_keys:
                store_i32(own_keys + 4 * m, load_i32(keys + 4 * at))
            m += 1
    store_i64(candidates + CANDIDATES.n, m)
    store_i64(candidates + CANDIDATES.ids, own_ids)
    store_i64(candidates + CANDIDATES.logits, own_logits)
    if keys != 0:
        store_i64(candidates + CANDIDATES.keys, own_keys if has_keys else own_logits)
        if m <= FEW:
            call(candidates, CANDIDATES.settle, 0, 0)


@kernel
def reach(args, candidates, how, unused):
    """Sets `at` and `cut` to the candidate at which the running sum of weights, in order, reaches `target`.

    `target` is above 0 and at most `total`, so that is one which adds to the sum.
    """
    target, n = load_f64(candidates + CANDIDATES.target), load_i64(candidates + CANDIDATES.n)
    if load_i64(candidates + CANDIDATES.keys) != 0:
        call(candidates, CANDIDATES.find, 0, 0)
        return
    weights, sums = load_i64(candidates + CANDIDATES.weights), load_i64(candidates + CANDIDATES.sums)
    start, running = 0, 0.0
    while start + SUM_BLOCK < n and running + load_f64(sums + start // SUM_BLOCK * 8) < target:
        running += load_f64(sums + start // SUM_BLOCK * 8)
        start += SUM_BLOCK
    at, i = start, start
    while i < n and running < target:
        weight = load_f32(weights + 4 * i)
        if weight > 0.0:
            at = i
            running += weight
        i += 1
    store_i64(candidates + CANDIDATES.at, at)
    store_f32(candidates + CANDIDATES.cut, load_f32(load_i64(candidates + CANDIDATES.logits) + 4 * at))


@kernel
def first(k, candidates, how, unused):
    """Only the first k in order stay."""
    n, keys = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.keys)
    if k >= n:
        return
    if keys == 0:
        store_i64(candidates + CANDIDATES.n, k)
        return
    weights = load_i64(candidates + CANDIDATES.weights)
    for i in range(0, n, LANES):
        store(weights + 4 * i, splat_f32x16(1.0))
    store_f64(candidates + CANDIDATES.target, k * 1.0)
    call(candidates, CANDIDATES.find, 0, 0)
    call(candidates, CANDIDATES.keep, keys, KEEP)


@kernel
def find(args, candidates, how, unused):
    """As `reach`, of candidates that have keys: adds up slices of their range and sorts the one where it happens."""
    n, keys = load_i64(candidates + CANDIDATES.n), load_i64(candidates + CANDIDATES.keys)
    weights = load_i64(candidates + CANDIDATES.weights)
    pairs, numbers = load_i64(candidates + CANDIDATES.pairs), load_i64(candidates + CANDIDATES.spare)
    sums = load_i64(candidates + CANDIDATES.slices)
    slice_candidates(keys, n, weights, numbers, sums, pairs)
    target, before, running, last = load_f64(candidates + CANDIDATES.target), 0.0, 0.0, 0
    for i in range(N_SLICES):
        if running >= target:
            break
        added = 0.0
        for j in range(SLICE_SUMS):
            added += load_f64(sums + 8 * (SLICE_SUMS * i + j))
        if added > 0.0:
            before, running, last = running, running + added, i
    lowest, beyond, m = splat_f32x16(last * 1.0), splat_f32x16(last + 1.0), 0
    for start in range(0, n, LANES):
        values = load_first(numbers + 4 * start, n - start)
        inside = bits_at_least(values, lowest) & bits_greater(beyond, values) & ((1 << min(n - start, LANES)) - 1)
        while inside != 0:
            i = start + lowest_bit(inside)
            inside &= inside - 1
            store_i64(pairs + 8 * m, pair(load_i32(keys + 4 * i), i))
            m += 1
    pairs, _ = sort_pairs(pairs, numbers, m, sums)
    running, at, i = before, load_i64(pairs) & 0xFFFFFFFF, 0
    while i < m and running < target:
        candidate = load_i64(pairs + 8 * i) & 0xFFFFFFFF
        weight = load_f32(weights + 4 * candidate)
        if weight > 0.0:
            at = candidate
            running += weight
        i += 1
    store_i64(candidates + CANDIDATES.at, at)
    store_f32(candidates + CANDIDATES.cut, load_f32(keys + 4 * at))


@device
def slice_candidates(keys, n, weights, numbers, sums, places):
    """Fills float32 `numbers` (n,), whose whole part is the slice that a key is in, 0 that of the largest, and `sums`.

    There are SLICE_SUMS sums of every slice, so that candidates do not wait for each other. `places` is room for LANES
    int32.
    """
    zero, infinite = splat_f32x16(0.0), splat_f32x16(INF)
    top, spread = splat_f32x16(largest(keys, n)), zero
    for i in range(0, n, LANES):
        below = keep_first(top - load_first(keys + 4 * i, n - i), n - i, zero)
        spread = maximum(select_less(below, infinite, below, zero), spread)
    width = max_lanes(spread)
    scale = min((N_SLICES - 1) / width, 1e30) if width > 0.0 else 1.0
    for i in range(SLICE_SUMS * N_SLICES):
        store_f64(sums + 8 * i, 0.0)
    for start in range(0, n, LANES):
        below = minimum((top - load_first(keys + 4 * start, n - start)) * scale, splat_f32x16(N_SLICES - 1.0))
        store(numbers + 4 * start, below)
        store(places, to_i32(below))
        for i in range(min(n - start, LANES)):
            at = sums + 8 * (SLICE_SUMS * load_i32(places + 4 * i) + i % SLICE_SUMS)
            store_f64(at, load_f64(at) + load_f32(weights + 4 * (start + i)))
