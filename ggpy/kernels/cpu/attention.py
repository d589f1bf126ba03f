"""Attention over KV pages: out = softmax(q . K * scale) V for every row and head of a step.

Positions are cut into splits at absolute multiples of SPLIT_TOKENS. A split gives a row the partial (m, l, o) of
`attention_split.py`, with its exact maximum m over the tokens that the row sees, and partials are merged in order of
splits (as in FlashAttention, Dao et al. 2022, section 3.1):

    M' = max(M, m),  a = exp2(M - M'),  b = exp2(m - M'),  L' = L * a + l * b,  O' = O * a + o * b;   out = O / L

starting from M = sink * log2(e), L = 1 where heads have sinks (a token without a value), else from L = 0. So bits
depend on positions alone: not on rows of the same step, threads, pages or how the prompt was cut.

Work is made of pairs (tile, kv head), whose query rows share each load of K and V. Where pairs are many, an item
finishes its own; where they are few (decode), their splits are shared too, each item taking about as many tokens, and
after a barrier `combine`, in as many items, merges the partials. `combine` also makes the int8 form of the result.
"""

import numpy as np

from ggpy.formats.kv import PAGE_TOKENS
from ggpy.kernels.cpu.accumulators import LANES, MAX_ROWS
from ggpy.kernels.cpu.arguments import ATTENTION as ARGS
from ggpy.kernels.cpu.attention_memory import FACTORS_BYTES
from ggpy.kernels.cpu.attention_partials import (
    count_tokens,
    end_visible,
    finish_rows,
    first_split_from,
    first_visible,
    group_size,
    merge_head,
    merge_rows,
    padded,
    partial_bytes,
    places,
    query_bytes,
    splits_are_shared,
    start_rows,
    tile_end_visible,
    tile_splits,
    tile_tokens,
)
from ggpy.kernels.cpu.attention_q8_0 import q8_0_keys, q8_0_values
from ggpy.kernels.cpu.attention_split import (
    LINE,
    SCORE_BYTES,
    apply_alibi,
    apply_mask,
    apply_softcap,
    float_keys,
    float_values,
    softmax,
)
from ggpy.kernels.cpu.exp import LOG2_E
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.quantize import quantize_run
from ggpy.kernels.cpu.simd import (
    load_f16,
    load_f32,
    load_i32,
    load_i64,
    splat_f32x16,
    store,
)
from ggpy.kernels.cpu.step import SPLIT_TOKENS, STEP, TILE, TILE_BYTES

SPLIT_PAGES = SPLIT_TOKENS // PAGE_TOKENS
PIECES_AHEAD = 2                    # how far memory is fetched ahead, 8 KB for 64 dimensions: 10 % faster than 1


@device
def query_factor(args):
    """What queries are multiplied with, so that scores are powers of two, or what tanh bends where there is a cap."""
    factor, softcap = load_f32(args + ARGS.scale), load_f32(args + ARGS.softcap)
    return factor / softcap if softcap != np.float32(0.0) else factor * np.float32(LOG2_E)


def make_ready_queries(keys):
    """Makes the queries of a pair ready for `keys`, groups of at most MAX_ROWS."""
    ready = keys.ready

    @device
    def ready_queries(args, tile, head_kv, n_query, q):
        dim, group = load_i64(args + ARGS.head_dim_k), group_size(args)
        n_head, factor = load_i64(args + ARGS.n_head), query_factor(args)
        n_groups = (n_query + MAX_ROWS - 1) // MAX_ROWS
        for j in range(n_groups):
            start, end = j * n_query // n_groups, (j + 1) * n_query // n_groups
            for row in range(start, end):
                head = (load_i64(tile + TILE.first_row) + row // group) * n_head + head_kv * group + row % group
                ready(load_i64(args + ARGS.x) + head * dim * 4, dim, factor, q + start * dim * 4, end - start,
                      row - start)

    return ready_queries


def make_page_passes(keys, values):
    """The two passes of a split over its pages, for all query rows of a pair."""
    k_dim_bytes, v_dim_bytes = keys.dim_bytes, values.dim_bytes
    scores, add = keys.scores, values.add

    @device
    def piece(args, tile, head_kv, first_page, end_page, i):
        """Address of the i-th piece that a split reads: a head's K of each page, then its V, then K of what follows."""
        n_pages = end_page - first_page
        n_head_kv = load_i64(args + ARGS.n_head_kv)
        table = load_i64(tile + TILE.page_table) + load_i64(args + ARGS.table_row)
        page, is_v = first_page + i, n_pages <= i < 2 * n_pages
        if is_v:
            page -= n_pages
        elif i >= 2 * n_pages:
            last = (load_i64(tile + TILE.first_position) + load_i64(tile + TILE.n_rows) - 1) // PAGE_TOKENS
            page = min(page - n_pages, last)
        index = load_i32(table + page * 4) * n_head_kv + head_kv
        if is_v:
            return load_i64(args + ARGS.v_pool) + index * (load_i64(args + ARGS.head_dim_v) * v_dim_bytes)
        return load_i64(args + ARGS.k_pool) + index * (load_i64(args + ARGS.head_dim_k) * k_dim_bytes)

    @device
    def add_scores(args, tile, head_kv, n_query, first_page, end_page, q, out):
        dim = load_i64(args + ARGS.head_dim_k)
        n_groups = (n_query + MAX_ROWS - 1) // MAX_ROWS
        for i in range(end_page - first_page):
            k = piece(args, tile, head_kv, first_page, end_page, i)
            ahead = piece(args, tile, head_kv, first_page, end_page, i + PIECES_AHEAD)
            at = out + (first_page + i) % SPLIT_PAGES * (PAGE_TOKENS * 4)
            for j in range(n_groups):
                start, end = j * n_query // n_groups, (j + 1) * n_query // n_groups
                scores(end - start, k, dim, q + start * dim * 4, at + start * SCORE_BYTES, ahead)
                ahead = k

    @device
    def add_values(args, tile, head_kv, n_query, first_page, end_page, lo, hi, p, o, work):
        """Positions lo..hi, which are in pages first_page..end_page."""
        dim = load_i64(args + ARGS.head_dim_v)
        stride = padded(dim) * 4
        n_groups = (n_query + MAX_ROWS - 1) // MAX_ROWS
        for i in range(end_page - first_page):
            v = piece(args, tile, head_kv, first_page, end_page, end_page - first_page + i)
            ahead = piece(args, tile, head_kv, first_page, end_page, end_page - first_page + i + PIECES_AHEAD)
            base = (first_page + i) * PAGE_TOKENS
            first, last = max(lo, base) - base, min(hi, base + PAGE_TOKENS) - base
            at = p + (first_page + i) % SPLIT_PAGES * (PAGE_TOKENS * 4)
            for j in range(n_groups):
                start, end = j * n_query // n_groups, (j + 1) * n_query // n_groups
                add(end - start, v, first, last, at + start * SCORE_BYTES, o + start * stride, stride, dim, ahead, work)
                ahead = v

    return add_scores, add_values


def make_attend_split(keys, values):
    """The partial of one split for all query rows of a pair."""
    add_scores, add_values = make_page_passes(keys, values)

    @device
    def attend_split(args, tile, head_kv, split, n_query, q, scores_at, partial, work):
        """Leaves the partial of `split` at `partial`."""
        group, n_floats = group_size(args), padded(load_i64(args + ARGS.head_dim_v))
        position = load_i64(tile + TILE.first_position)
        start = split * SPLIT_TOKENS
        lo = max(start, first_visible(args, position))
        hi = min(start + SPLIT_TOKENS, tile_end_visible(args, tile))
        first_page, end_page = lo // PAGE_TOKENS, (hi + PAGE_TOKENS - 1) // PAGE_TOKENS
        add_scores(args, tile, head_kv, n_query, first_page, end_page, q, scores_at)

        first = (first_page * PAGE_TOKENS - start) // LANES
        end = (end_page * PAGE_TOKENS - start) // LANES
        softcap, alibi = load_f32(args + ARGS.softcap), load_i64(args + ARGS.alibi)
        for row in range(n_query):
            at = scores_at + row * SCORE_BYTES
            own = position + row // group
            if softcap != np.float32(0.0):
                apply_softcap(at, softcap * np.float32(LOG2_E), first, end)
            if alibi != 0:
                slope = load_f32(alibi + (head_kv * group + row % group) * 4)
                apply_alibi(at, slope * np.float32(LOG2_E), own - start, first, end)
            apply_mask(at, first_visible(args, own) - start, end_visible(args, tile, own) - start, first, end)
            m, l, _ = places(n_query, n_floats, row)
            softmax(at, first, end, partial + m, partial + l)

        for i in range(n_query * n_floats // LANES):
            store(partial + i * LINE, splat_f32x16(0.0))
        add_values(args, tile, head_kv, n_query, first_page, end_page, lo, hi, scores_at, partial, work)

    return attend_split


def make_attend(keys, values):
    """The kernel "attend" for pools of two types."""
    attend_split = make_attend_split(keys, values)
    ready_queries = make_ready_queries(keys)

    @device
    def attend_pair(args, tile, head_kv, first, end, work, partials):
        """Splits first..end of a pair: each one's partial to `partials`, or all of them and the result if that is 0."""
        n_query = load_i64(tile + TILE.n_rows) * group_size(args)
        size = partial_bytes(n_query, padded(load_i64(args + ARGS.head_dim_v)))
        q = work + FACTORS_BYTES
        scores_at = q + query_bytes(n_query, load_i64(args + ARGS.head_dim_k))
        own = scores_at + n_query * SCORE_BYTES
        ready_queries(args, tile, head_kv, n_query, q)
        if partials == 0:
            start_rows(args, head_kv, n_query, own + size)
        for split in range(first, end):
            partial = own if partials == 0 else partials + (split - first) * size
            attend_split(args, tile, head_kv, split, n_query, q, scores_at, partial, work)
            if partials == 0:
                merge_rows(args, tile, split, n_query, partial, own + size)
        if partials == 0:
            finish_rows(args, tile, head_kv, n_query, own + size)

    @kernel
    def attend(args, step, item, n_items):
        n_tiles, n_head_kv = load_i64(step + STEP.n_tiles), load_i64(args + ARGS.n_head_kv)
        n_floats = padded(load_i64(args + ARGS.head_dim_v))
        scratch = load_i64(step + STEP.scratch)
        shared = splits_are_shared(args, step, n_items)
        n_visible = count_tokens(args, step) * n_head_kv if shared else 0
        begin, stop = n_visible * item // n_items, n_visible * (item + 1) // n_items
        partials = load_i64(args + ARGS.partials)
        before = index = 0              # tokens and pairs before this one
        for head_kv in range(n_head_kv):
            to = partials
            for i in range(n_tiles):
                tile = load_i64(step + STEP.tiles) + i * TILE_BYTES
                first, end = tile_splits(args, tile)
                lo, hi, at = first, end, 0
                if shared:
                    size = partial_bytes(load_i64(tile + TILE.n_rows) * group_size(args), n_floats)
                    lo, hi = first_split_from(args, tile, begin - before), first_split_from(args, tile, stop - before)
                    at = to + (head_kv * (end - first) + lo - first) * size
                    before += tile_tokens(args, tile)
                    to += (end - first) * n_head_kv * size
                elif index % n_items != item:
                    hi = lo
                if lo < hi:
                    attend_pair(args, tile, head_kv, lo, hi, scratch, at)
                index += 1

    return attend


KEYS = {"f16": float_keys("f16"), "q8_0": q8_0_keys, "f32": float_keys("f32")}
VALUES = {"f16": float_values("f16", load_f16), "q8_0": q8_0_values, "f32": float_values("f32", load_f32)}
# "attend_f16_q8_0" reads keys of f16 and values of q8_0
globals().update({f"attend_{k}_{v}": make_attend(KEYS[k], VALUES[v]) for k in KEYS for v in VALUES})


@device
def quantize_heads(args, n_rows, row, first_head, end_head):
    """Makes the int8 form of some heads of a row, which are whole blocks."""
    dim, n_head = load_i64(args + ARGS.head_dim_v), load_i64(args + ARGS.n_head)
    n_blocks = load_i64(args + ARGS.n_blocks)
    end = end_head * dim // 32 if end_head < n_head else n_blocks
    quantize_run(load_i64(args + ARGS.out) + row * n_head * dim * 4, first_head * dim // 32, end, row, n_rows, n_blocks,
                 n_head * dim // 32, load_i64(args + ARGS.q), load_i64(args + ARGS.da), load_i64(args + ARGS.ys),
                 load_i64(args + ARGS.n16))


@kernel
def combine(args, step, item, n_items):
    """Merges the partials of shared splits, and makes the int8 form of the result if it is wanted."""
    shared = splits_are_shared(args, step, n_items)
    int8 = load_i64(args + ARGS.q) != 0
    if not (shared or int8):
        return
    n_head, dim = load_i64(args + ARGS.n_head), load_i64(args + ARGS.head_dim_v)
    n_rows = load_i64(step + STEP.n_tokens)
    sums = load_i64(step + STEP.scratch)
    heads = 1 if dim % 32 == 0 else n_head              # a unit's result is whole blocks
    n_spans = n_head // heads
    begin, stop = n_rows * n_spans * item // n_items, n_rows * n_spans * (item + 1) // n_items
    partials = load_i64(args + ARGS.partials)
    for i in range(load_i64(step + STEP.n_tiles)):
        tile = load_i64(step + STEP.tiles) + i * TILE_BYTES
        first_row, tile_rows = load_i64(tile + TILE.first_row), load_i64(tile + TILE.n_rows)
        for unit in range(max(begin, first_row * n_spans), min(stop, (first_row + tile_rows) * n_spans)):
            row, head = unit // n_spans, unit % n_spans * heads
            if shared:
                for h in range(head, head + heads):
                    merge_head(args, tile, partials, row - first_row, h, sums)
            if int8:
                quantize_heads(args, n_rows, row, head, head + heads)
        if shared:
            first, end = tile_splits(args, tile)
            size = partial_bytes(tile_rows * group_size(args), padded(dim))
            partials += (end - first) * load_i64(args + ARGS.n_head_kv) * size
