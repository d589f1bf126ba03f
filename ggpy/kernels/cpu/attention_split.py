"""Attention of some query rows over one page or split: scores, softmax, weighted values. All sums have a fixed order.

    score[t] = sum over d, in order, of q[d] * K[d][t]              one lane per token, no horizontal sum
    p[t] = exp2(score[t] - max score),   l = sum of p               lane t % 16 in order of t, then a fixed tree
    o[d] = sum over t, in order, of p[t] * V[t][d]                  one lane per dimension

Every query row has the same arithmetic in whatever number they are taken through the registers, and hidden tokens add
exact zeros, so a row's bits do not depend on the rows beside it. Queries come scaled by log2(e) (see attention.py) and
stand in groups of at most MAX_ROWS, (dim, row) within a group; scores are rows of SPLIT_TOKENS floats. Pools of floats
are read here, those of q8_0 in attention_q8_0.py.
"""

from typing import Any, NamedTuple

import numpy as np

from ggpy.formats.kv import PAGE_TOKENS
from ggpy.kernels.cpu.accumulators import ITEM_BYTES, LANES, SPAN, make_products
from ggpy.kernels.cpu.exp import exp2_nonpositive, tanh
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.kv_pages import DIM_BYTES
from ggpy.kernels.cpu.simd import (
    absolute,
    fma,
    keep_first,
    lane_index,
    load_f32,
    load_f32x16,
    max_lanes,
    maximum,
    splat_f32x16,
    store,
    store_f32,
    store_lanes,
    sum_lanes,
    to_f32,
)
from ggpy.kernels.cpu.step import SPLIT_TOKENS

SCORE_BYTES = SPLIT_TOKENS * 4          # from one query row's scores to the next
HIDDEN = -1e30                          # a score whose exp2 is exactly 0
LINE = 64


class Keys(NamedTuple):
    """How attention reads K pages of one type."""

    dim_bytes: int      # see kv_pages.py
    ready: Any          # ready(x, dim, factor, q, n_rows, row): the query x times factor, as row `row` of a group at q
    scores: Any         # scores(n_rows, k, dim, q, out, ahead): those of a group of queries with the tokens of a page


class Values(NamedTuple):
    """How attention reads V pages of one type."""

    dim_bytes: int
    # add(n_rows, v, first, end, p, o, o_stride, dim, ahead, work): adds p * V of tokens first..end of a page to o
    add: Any


def float_keys(element):
    """K pages (dim, 32) of "f16" or "f32"; `ahead` is what will be read later, fetched line by line."""
    products = make_products(element, from_zero=True)
    item_bytes = ITEM_BYTES[element]
    stride = PAGE_TOKENS * item_bytes

    @device
    def ready(x, dim, factor, q, n_rows, row):
        step, to = n_rows * 4, q + row * 4
        for d in range(0, dim - 15, 16):
            store_lanes(to + d * step, step, load_f32x16(x + d * 4) * factor)
        for d in range(dim // 16 * 16, dim):
            store_f32(to + d * step, load_f32(x + d * 4) * factor)

    @device
    def scores(n_rows, k, dim, q, out, ahead):
        for token in range(0, PAGE_TOKENS, SPAN):
            at = token * item_bytes
            products((n_rows, out + token * 4, SCORE_BYTES, q, 4, n_rows * 4, k + at, stride, dim, ahead + at, stride))

    return Keys(DIM_BYTES[element], ready, scores)


def float_values(element, load_one):
    """V pages (32, dim) of "f16" or "f32".

    o holds, for each row, sums of SPAN dimensions each; the last ones overlap those before them where SPAN does not
    divide dim (see `span_start`). Narrower heads are added up one by one.
    """
    products = make_products(element, from_zero=False)
    item_bytes = ITEM_BYTES[element]

    @device
    def wide(n_rows, v, n, p, o, o_stride, dim, ahead):
        for c in range((dim + SPAN - 1) // SPAN):
            products((n_rows, o + c * (SPAN * 4), o_stride, p, SCORE_BYTES, 4, v + span_start(c, dim) * item_bytes,
                      dim * item_bytes, n, ahead + c * (PAGE_TOKENS * SPAN * item_bytes), SPAN * item_bytes))

    @device
    def narrow(n_rows, v, n, p, o, o_stride, dim):
        for r in range(n_rows):
            for d in range(dim):
                total = load_f32(o + r * o_stride + d * 4)
                for t in range(n):
                    total = fma(load_f32(p + r * SCORE_BYTES + t * 4), load_one(v + (t * dim + d) * item_bytes), total)
                store_f32(o + r * o_stride + d * 4, total)

    @device
    def add(n_rows, v, first, end, p, o, o_stride, dim, ahead, work):
        v += first * dim * item_bytes
        p += first * 4
        if dim >= SPAN:
            wide(n_rows, v, end - first, p, o, o_stride, dim, ahead)
        else:
            narrow(n_rows, v, end - first, p, o, o_stride, dim)

    return Values(DIM_BYTES[element], add)


@device
def span_start(c, dim):
    """First dimension of the c-th sums of a row."""
    return min(c * SPAN, dim - SPAN)


@device
def apply_mask(scores, lo, hi, first, end):
    """The mask: hides the tokens below lo and from hi on, among those of vectors first..end of a row of scores."""
    for i in range(first, min(end, (lo + LANES - 1) // LANES)):
        at = scores + i * LINE
        store(at, keep_first(splat_f32x16(HIDDEN), lo - i * LANES, load_f32x16(at)))
    for i in range(max(first, hi // LANES), end):
        at = scores + i * LINE
        store(at, keep_first(load_f32x16(at), hi - i * LANES, splat_f32x16(HIDDEN)))


@device
def apply_softcap(scores, factor, first, end):
    """The softcap: tanh(score) * factor of vectors first..end; the division stands in the queries' scale."""
    for i in range(first, end):
        at = scores + i * LINE
        store(at, tanh(load_f32x16(at)) * factor)


@device
def apply_alibi(scores, slope, position, first, end):
    """ALiBi: takes slope * distance off the scores of vectors first..end, for a row at `position`."""
    for i in range(first, end):
        at = scores + i * LINE
        distance = absolute(to_f32(lane_index() + (i * LANES - position)))
        store(at, load_f32x16(at) - distance * slope)


@device
def softmax(scores, first, end, m, l):
    """Vectors first..end of a row of scores become p; the maximum and the sum of p are stored at m and l."""
    top = load_f32x16(scores + first * LINE)
    for i in range(first + 1, end):
        top = maximum(top, load_f32x16(scores + i * LINE))
    highest = max_lanes(top)
    total = splat_f32x16(np.float32(0.0))
    for i in range(first, end):
        p = exp2_nonpositive(load_f32x16(scores + i * LINE) - highest)
        store(scores + i * LINE, p)
        total = total + p
    store_f32(m, highest)
    store_f32(l, sum_lanes(total))
