"""What the parts of attention share: which splits a row sees, and partials: running sums, merging, the result.

A partial and its memory are described in `attention_memory.py`. Positions count from the start of the sequence. The
running partial of a head has the same form; it is merged with that of each split in order (see `attention.py`).
"""

import numpy as np

from ggpy.kernels.cpu.accumulators import LANES, SPAN
from ggpy.kernels.cpu.arguments import ATTENTION as ARGS
from ggpy.kernels.cpu.attention_memory import padded as padded_floats
from ggpy.kernels.cpu.attention_memory import partial_bytes as bytes_of_partial
from ggpy.kernels.cpu.attention_memory import query_bytes as bytes_of_queries
from ggpy.kernels.cpu.attention_split import HIDDEN, LINE, span_start
from ggpy.kernels.cpu.exp import LOG2_E, exp2_nonpositive
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.simd import (
    broadcast_f32,
    first_lane,
    fma,
    load_f32,
    load_f32x16,
    load_i64,
    maximum,
    splat_f32x16,
    store,
    store_f32,
)
from ggpy.kernels.cpu.step import SPLIT_TOKENS, STEP, TILE, TILE_BYTES

padded, partial_bytes, query_bytes = map(device, (padded_floats, bytes_of_partial, bytes_of_queries))


@device
def first_visible(args, position):
    """The first position that a row sees."""
    window = load_i64(args + ARGS.window)
    return max(0, position - window + 1) if window > 0 else 0


@device
def end_visible(args, tile, position):
    """Behind the last position that a row sees: its own, or that of the step's last row of the sequence."""
    return position + 1 if load_i64(args + ARGS.causal) != 0 else load_i64(tile + TILE.end_position)


@device
def tile_end_visible(args, tile):
    """Behind the last position that some row of a tile sees."""
    return end_visible(args, tile, load_i64(tile + TILE.first_position) + load_i64(tile + TILE.n_rows) - 1)


@device
def tile_splits(args, tile):
    """(first, end) of the splits that some row of a tile sees."""
    position = load_i64(tile + TILE.first_position)
    return first_visible(args, position) // SPLIT_TOKENS, (tile_end_visible(args, tile) - 1) // SPLIT_TOKENS + 1


@device
def group_size(args):
    """Query heads that share a kv head."""
    return load_i64(args + ARGS.n_head) // load_i64(args + ARGS.n_head_kv)


@device
def splits_are_shared(args, step, n_items):
    """Whether the `n_items` items share the splits of pairs: there are too few pairs for an item to have its own."""
    return load_i64(step + STEP.n_tiles) * load_i64(args + ARGS.n_head_kv) < n_items


@device
def tile_tokens(args, tile):
    """How many tokens some row of a tile sees."""
    return tile_end_visible(args, tile) - first_visible(args, load_i64(tile + TILE.first_position))


@device
def count_tokens(args, step):
    """Tokens that the tiles see, all together."""
    n = 0
    for i in range(load_i64(step + STEP.n_tiles)):
        n += tile_tokens(args, load_i64(step + STEP.tiles) + i * TILE_BYTES)
    return n


@device
def first_split_from(args, tile, token):
    """The first split of a tile whose middle is the `token`-th that the tile sees, or a later one."""
    first, end = tile_splits(args, tile)
    begin = first_visible(args, load_i64(tile + TILE.first_position))
    stop = begin + tile_tokens(args, tile)
    for split in range(first, end):
        lo, hi = max(begin, split * SPLIT_TOKENS), min(stop, (split + 1) * SPLIT_TOKENS)
        if (lo + hi) // 2 - begin >= token:
            return split
    return end


@device
def places(n_query, n_floats, row):
    """Offsets of m, l and o of a query row in a partial."""
    m = n_query * n_floats * 4 + row * 4
    return m, m + n_query * 4, row * n_floats * 4


@device
def start_sums(args, head, m, l, o):
    """The running partial of one head before its first split."""
    sinks = load_i64(args + ARGS.sinks)
    if sinks != 0:
        store_f32(m, load_f32(sinks + head * 4) * np.float32(LOG2_E))
        store_f32(l, np.float32(1.0))
    else:
        store_f32(m, np.float32(HIDDEN))
        store_f32(l, np.float32(0.0))
    for i in range(padded(load_i64(args + ARGS.head_dim_v)) // LANES):
        store(o + i * LINE, splat_f32x16(0.0))


@device
def merge(m, l, o, m2, l2, o2, n_floats):
    """Adds the partial (m2, l2, o2) of one head to its running partial (m, l, o)."""
    old, new = broadcast_f32(m), broadcast_f32(m2)
    top = maximum(old, new)
    a, b = exp2_nonpositive(old - top), exp2_nonpositive(new - top)
    store_f32(m, first_lane(top))
    store_f32(l, first_lane(fma(broadcast_f32(l), a, broadcast_f32(l2) * b)))
    for i in range(n_floats // LANES):
        at = i * LINE
        store(o + at, fma(load_f32x16(o + at), a, load_f32x16(o2 + at) * b))


@device
def finish(l, o, dim, out):
    """out = O / L for the dim values of one head."""
    total = load_f32(l)
    if dim >= SPAN:
        for c in range((dim + SPAN - 1) // SPAN):
            for i in range(0, SPAN, LANES):
                store(out + (span_start(c, dim) + i) * 4, load_f32x16(o + (c * SPAN + i) * 4) / splat_f32x16(total))
    else:
        for d in range(dim):
            store_f32(out + d * 4, load_f32(o + d * 4) / total)


@device
def merge_rows(args, tile, split, n_query, partial, sums):
    """Adds the partial of a split to the running partial of the query rows that see some of it."""
    group, n_floats = group_size(args), padded(load_i64(args + ARGS.head_dim_v))
    for row in range(n_query):
        position = load_i64(tile + TILE.first_position) + row // group
        last = end_visible(args, tile, position) - 1
        if first_visible(args, position) // SPLIT_TOKENS <= split <= last // SPLIT_TOKENS:
            m, l, o = places(n_query, n_floats, row)
            merge(sums + m, sums + l, sums + o, partial + m, partial + l, partial + o, n_floats)


@device
def start_rows(args, head_kv, n_query, sums):
    group, n_floats = group_size(args), padded(load_i64(args + ARGS.head_dim_v))
    for row in range(n_query):
        m, l, o = places(n_query, n_floats, row)
        start_sums(args, head_kv * group + row % group, sums + m, sums + l, sums + o)


@device
def finish_rows(args, tile, head_kv, n_query, sums):
    dim, group = load_i64(args + ARGS.head_dim_v), group_size(args)
    for row in range(n_query):
        head = (load_i64(tile + TILE.first_row) + row // group) * load_i64(args + ARGS.n_head) + (
            head_kv * group + row % group)
        _, l, o = places(n_query, padded(dim), row)
        finish(sums + l, sums + o, dim, load_i64(args + ARGS.out) + head * dim * 4)


@device
def merge_head(args, tile, partials, row, head, sums):
    """Result of one head at row `row` of a tile, whose partials start at `partials`."""
    dim, group = load_i64(args + ARGS.head_dim_v), group_size(args)
    n_query, n_floats = load_i64(tile + TILE.n_rows) * group, padded(dim)
    size = partial_bytes(n_query, n_floats)
    tile_first, tile_end = tile_splits(args, tile)
    m, l, o = places(n_query, n_floats, row * group + head % group)
    own_m, own_l, own_o = places(1, n_floats, 0)
    position = load_i64(tile + TILE.first_position) + row
    start_sums(args, head, sums + own_m, sums + own_l, sums + own_o)
    last = end_visible(args, tile, position) - 1
    for split in range(first_visible(args, position) // SPLIT_TOKENS, last // SPLIT_TOKENS + 1):
        partial = partials + (head // group * (tile_end - tile_first) + split - tile_first) * size
        merge(sums + own_m, sums + own_l, sums + own_o, partial + m, partial + l, partial + o, n_floats)
    finish(sums + own_l, sums + own_o, dim, load_i64(args + ARGS.out) + (
        (load_i64(tile + TILE.first_row) + row) * load_i64(args + ARGS.n_head) + head) * dim * 4)
