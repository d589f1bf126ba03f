"""Mixture of experts: which experts each token uses, and its slots in order of expert.

A *slot* is a (token, rank) pair, number token * n_used + rank, best expert first. Routing leaves four arrays:

    experts      int32 (n_slots,)      the expert of each slot
    slot_order   int32 (n_slots,)      slots in order of (expert, slot)
    chunks       int64 (n_chunks, 3)   runs of at most CHUNK_ROWS places of slot_order with one expert: see CHUNK
    n_chunks     int64                 at most n_slots

"route_*" chooses, with items sharing the tokens, and writes the first; then "arrange" writes the others. The linears
of experts stand in matmul.py and float_linear.py: they read activations chunk by chunk, and leave the result of slot s
in row s of their output. What a slot gets depends on its own token alone. Routing uses ROUTE_SCRATCH_BYTES of scratch
memory for each expert.
"""

import numpy as np

from ggpy.kernels.cpu.arguments import CHUNK, CHUNK_BYTES, CHUNK_ROWS, EXPERT_QUANTIZE, EXPERT_SUM, ROUTE
from ggpy.kernels.cpu.exp import exp
from ggpy.kernels.cpu.exp import sigmoid as sigmoid_of
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.matmul import scratch_of
from ggpy.kernels.cpu.quantize import quantize_blocks
from ggpy.kernels.cpu.simd import (
    broadcast_f32,
    fma,
    keep_first,
    lane_index,
    load_f32,
    load_first,
    load_i32,
    load_i64,
    max_lanes,
    maximum,
    select_less,
    splat_f32x16,
    store_f32,
    store_first,
    store_i32,
    store_i64,
    sum_lanes,
    to_f32,
)

INFINITY = float("inf")
LOWEST = -3.4028234663852886e38          # of float32
MIN_SUM = 2.0**-14                      # the smallest divisor of weights, as llama.cpp bounds it


@device
def copy(x, n, out):
    for i in range(0, n, 16):
        store_first(out + 4 * i, n - i, load_first(x + 4 * i, n - i))


@device
def sigmoid(x, n, out):
    for i in range(0, n, 16):
        store_first(out + 4 * i, n - i, sigmoid_of(load_first(x + 4 * i, n - i)))


@device
def softmax(x, n, out):
    """Softmax of n floats at x; out may be x."""
    peaks = splat_f32x16(-INFINITY)
    for i in range(0, n, 16):
        peaks = maximum(peaks, keep_first(load_first(x + 4 * i, n - i), n - i, splat_f32x16(-INFINITY)))
    peak = max_lanes(peaks)
    sums = splat_f32x16(0.0)
    for i in range(0, n, 16):
        e = keep_first(exp(load_first(x + 4 * i, n - i) - peak), n - i, splat_f32x16(0.0))
        sums = sums + e
        store_first(out + 4 * i, n - i, e)
    total = splat_f32x16(sum_lanes(sums))
    for i in range(0, n, 16):
        store_first(out + 4 * i, n - i, load_first(out + 4 * i, n - i) / total)


@device
def rank(scores, bias, n, ranking):
    """scores + bias; a NaN and minus infinity become the lowest number, so that minus infinity can mean chosen."""
    for i in range(0, n, 16):
        v = load_first(scores + 4 * i, n - i)
        if bias != 0:
            v = v + load_first(bias + 4 * i, n - i)
        store_first(ranking + 4 * i, n - i, maximum(v, splat_f32x16(LOWEST)))


@device
def best_of(ranking, n):
    """The index of the highest rank, the lowest index among equals."""
    best, where = splat_f32x16(-INFINITY), splat_f32x16(0.0)
    for i in range(0, n, 16):
        v = keep_first(load_first(ranking + 4 * i, n - i), n - i, splat_f32x16(-INFINITY))
        where = select_less(best, v, to_f32(lane_index() + i), where)
        best = maximum(v, best)
    others = splat_f32x16(INFINITY)
    return np.int64(-max_lanes(splat_f32x16(0.0) - select_less(best, splat_f32x16(max_lanes(best)), others, where)))


@device
def choose(ranking, n_expert, n_used, experts):
    """The n_used experts of highest rank, best first; their places in `ranking` become minus infinity."""
    for r in range(n_used):
        expert = best_of(ranking, n_expert)
        store_i32(experts + 4 * r, np.int32(expert))
        store_f32(ranking + 4 * expert, np.float32(-INFINITY))


@device
def finish_weights(out, n_used, normalise, scale):
    """The n_used weights at out divided by their sum, if that is wanted, and scaled."""
    divisor = np.float32(1.0)
    if normalise:
        total = np.float32(0.0)
        for r in range(n_used):
            total += load_f32(out + 4 * r)
        divisor = total if not total < np.float32(MIN_SUM) else np.float32(MIN_SUM)
    for r in range(n_used):
        store_f32(out + 4 * r, load_f32(out + 4 * r) / divisor * scale)


def make_route(score, weigh):
    """The kernel that routes by score(logits), with the weights weigh(scores of the chosen)."""

    @kernel
    def route(args, step, item, n_items):
        n_rows = load_i64(step + load_i64(args + ROUTE.n_rows))
        n_expert, n_used = load_i64(args + ROUTE.n_expert), load_i64(args + ROUTE.n_used)
        bias = load_i64(args + ROUTE.bias)
        scores = scratch_of(step)
        ranking = scores + 4 * n_expert
        for row in range(n_rows * item // n_items, n_rows * (item + 1) // n_items):
            logits = load_i64(args + ROUTE.logits) + row * n_expert * 4
            experts = load_i64(args + ROUTE.experts) + row * n_used * 4
            out = load_i64(args + ROUTE.out) + row * n_used * 4
            score(logits, n_expert, scores)
            # scores grow with logits, but saturate and then tie where logits do not
            rank(scores if bias != 0 else logits, bias, n_expert, ranking)
            choose(ranking, n_expert, n_used, experts)
            for r in range(n_used):
                store_f32(out + 4 * r, load_f32(scores + 4 * load_i32(experts + 4 * r)))
            weigh(out, n_used, out)
            finish_weights(out, n_used, load_i64(args + ROUTE.normalise) != 0, load_f32(args + ROUTE.scale))

    return route


route_softmax = make_route(softmax, copy)
route_sigmoid = make_route(sigmoid, copy)
route_softmax_after = make_route(copy, softmax)


@device
def make_chunks(expert, first, n, chunk):
    """Chunks for the n places of slot_order from `first` on; returns the address behind the last."""
    for i in range(0, n, CHUNK_ROWS):
        store_i64(chunk + CHUNK.expert, expert)
        store_i64(chunk + CHUNK.first, first + i)
        store_i64(chunk + CHUNK.n_rows, min(CHUNK_ROWS, n - i))
        chunk += CHUNK_BYTES
    return chunk


@kernel
def arrange(args, step, item, n_items):
    """slot_order and chunks by a counting sort, in one item: a few additions a slot."""
    if item != 0:
        return
    n_slots = load_i64(step + load_i64(args + ROUTE.n_rows)) * load_i64(args + ROUTE.n_used)
    n_expert = load_i64(args + ROUTE.n_expert)
    experts, order = load_i64(args + ROUTE.experts), load_i64(args + ROUTE.slot_order)
    counts = scratch_of(step)
    for e in range(n_expert):
        store_i64(counts + 8 * e, 0)
    for slot in range(n_slots):
        count = counts + 8 * load_i32(experts + 4 * slot)
        store_i64(count, load_i64(count) + 1)
    chunks = load_i64(args + ROUTE.chunks)
    chunk, place = chunks, 0
    for e in range(n_expert):
        n = load_i64(counts + 8 * e)
        chunk = make_chunks(e, place, n, chunk)
        store_i64(counts + 8 * e, place)
        place += n
    store_i64(load_i64(args + ROUTE.n_chunks), (chunk - chunks) // CHUNK_BYTES)
    for slot in range(n_slots):
        next_place = counts + 8 * load_i32(experts + 4 * slot)
        store_i32(order + 4 * load_i64(next_place), np.int32(slot))
        store_i64(next_place, load_i64(next_place) + 1)


@kernel
def quantize(args, step, item, n_items):
    """The activations of every slot in int8, in the layout of quantize.py with these chunks.

    A chunk that begins at place p of slot_order begins at row p. x has a row per slot or per token.
    """
    n_used = load_i64(args + EXPERT_QUANTIZE.n_used)
    n_slots = load_i64(step + load_i64(args + EXPERT_QUANTIZE.n_rows)) * n_used
    slots_per_x = 1 if load_i64(args + EXPERT_QUANTIZE.x_per_slot) != 0 else n_used
    n_blocks, n_filled = load_i64(args + EXPERT_QUANTIZE.n_blocks), load_i64(args + EXPERT_QUANTIZE.n_filled)
    q, da = load_i64(args + EXPERT_QUANTIZE.q), load_i64(args + EXPERT_QUANTIZE.da)
    ys, n16 = load_i64(args + EXPERT_QUANTIZE.ys), load_i64(args + EXPERT_QUANTIZE.n16)
    chunks = load_i64(args + EXPERT_QUANTIZE.chunks)
    begin, end = n_slots * item // n_items, n_slots * (item + 1) // n_items
    for c in range(load_i64(load_i64(args + EXPERT_QUANTIZE.n_chunks))):
        first = load_i64(chunks + c * CHUNK_BYTES + CHUNK.first)
        m = load_i64(chunks + c * CHUNK_BYTES + CHUNK.n_rows)
        for place in range(max(first, begin), min(first + m, end)):
            slot = load_i32(load_i64(args + EXPERT_QUANTIZE.slot_order) + 4 * place)
            x = load_i64(args + EXPERT_QUANTIZE.x) + slot // slots_per_x * n_filled * 128
            quantize_blocks(x, 0, n_blocks, n_filled, first * n_blocks, place - first, m, q, da, ys, n16)


@kernel
def sum(args, step, item, n_items):
    """out = sum over ranks of weight * slot, one fma after the other; items share runs of 16 columns."""
    n_used, width = load_i64(args + EXPERT_SUM.n_used), load_i64(args + EXPERT_SUM.width)
    n_runs = (width + 15) // 16
    n_units = load_i64(step + load_i64(args + EXPERT_SUM.n_rows)) * n_runs
    for unit in range(n_units * item // n_items, n_units * (item + 1) // n_items):
        row, i = unit // n_runs, unit % n_runs * 16
        total = splat_f32x16(0.0)
        for slot in range(row * n_used, (row + 1) * n_used):
            x = load_first(load_i64(args + EXPERT_SUM.slots) + (slot * width + i) * 4, width - i)
            total = fma(broadcast_f32(load_i64(args + EXPERT_SUM.weights) + 4 * slot), x, total)
        store_first(load_i64(args + EXPERT_SUM.out) + (row * width + i) * 4, width - i, total)
