"""out = x @ weight.T (+ bias) (+ residual) for every format: the frame around a format's `rows`.

A weight matrix is packed in groups of GROUP_ROWS rows, interleaved so that one vector lane belongs to one row. A format
gives `rows(w, n_blocks, m, q, da, ys, n16, acc)`: it decodes each weight block of one group once and leaves, for m
activation rows, the eight partial sums of the canonical order in acc, float32 (8, m, 16). The activations are those of
a chunk as quantize.py lays them out: int8 values q, for each block of 32 the float32 da, its scale, and ys = -RN(da *
sum(q)), for each half of it the int32 n16 = -128 * sum(q). Of n16 a product whose weights are too large by 2^k takes
2^(k - 7), which is what that has added to the integer sum, negative; packed weights with a bias are made too large by
128 where the processor wants them unsigned anyway, and take n16 whole (see blocks.py). The order of one output:

    for block j:  S = exact integer sum;  t = RN(S * d);  acc[j % 8] = fma(t, da[j], acc[j % 8])
                  with minimums:          acc[j % 8] = fma(dm * mn, ys[j], acc[j % 8])
    result = ((acc0 + acc4) + (acc2 + acc6)) + ((acc1 + acc5) + (acc3 + acc7))  (+ bias) (+ residual)

It involves one row of weights and one of activations, so the bits of a row never depend on its company. The groups
are shared out in items (see executor.py); in an item a panel of groups that fits the L2 cache meets all chunks of rows
before the next.

With experts, activations come in chunks of slots that use the same expert (see experts.py). Every item has its share
of the groups of each expert, so the work is even however the tokens are routed.
"""

from ggpy.kernels.cpu.arguments import CHUNK, CHUNK_BYTES, CHUNK_ROWS, EXPERT_LINEAR, GROUP_ROWS, LINEAR
from ggpy.kernels.cpu.kernel import device, kernel, unrolled
from ggpy.kernels.cpu.simd import (
    load_f32x16,
    load_first,
    load_i32,
    load_i64,
    splat_f32x16,
    store,
    store_first,
)
from ggpy.kernels.cpu.step import STEP
from ggpy.kernels.cpu.tile_products import begin_tiles, end_tiles
from ggpy.kernels.cpu.tiles import HAS_TILES

PANEL_BYTES = 256 * 1024            # half of a usual L2 cache, the rest is for activations


@device
def row_at(order, i):
    """The row at position i: order[i], or i itself where there is no order (address 0)."""
    return load_i32(order + 4 * i) if order != 0 else i


@device
def store_columns(v, row, out, n_out, first, bias, residual):
    """Columns first..first + 16, as far as there are n_out, of a row of `out`: v (+ bias) (+ residual)."""
    n = n_out - first
    at = (row * n_out + first) * 4
    if bias != 0:
        v = v + load_first(bias + first * 4, n)
    if residual != 0:
        v = v + load_first(residual + at, n)
    store_first(out + at, n, v)


@device
def finish(acc, m, order, start, out, n_out, first, bias, residual):
    """Adds the eight partial sums of the m rows from position `start` on, and stores them with bias and residual."""
    k = m * 64
    for t in range(m):
        a = acc + t * 64
        v = ((load_f32x16(a) + load_f32x16(a + 4 * k)) + (load_f32x16(a + 2 * k) + load_f32x16(a + 6 * k))) + (
            (load_f32x16(a + k) + load_f32x16(a + 5 * k)) + (load_f32x16(a + 3 * k) + load_f32x16(a + 7 * k)))
        store_columns(v, row_at(order, start + t), out, n_out, first, bias, residual)


@device
def clear(acc, m):
    for i in range(8 * m):
        store(acc + 64 * i, splat_f32x16(0.0))


@device
def scratch_of(step):
    return load_i64(step + STEP.scratch)


@device
def end_of_expert(chunk, last):
    """The first chunk behind `chunk` that belongs to another expert, or `last`."""
    expert = load_i64(chunk + CHUNK.expert)
    chunk += CHUNK_BYTES
    while chunk < last and load_i64(chunk + CHUNK.expert) == expert:
        chunk += CHUNK_BYTES
    return chunk


@device
def expert_weight(args, fields, expert):
    return load_i64(args + fields.weight) + expert * load_i64(args + fields.expert_bytes)


@device
def expert_bias(args, fields, expert):
    bias = load_i64(args + fields.bias)
    return bias + expert * load_i64(args + fields.n_out) * 4 if bias != 0 else bias


@device
def first_group(n_out, item, n_items):
    """Item `item` of `n_items` has the groups from this one to the first of the next item."""
    return (n_out + GROUP_ROWS - 1) // GROUP_ROWS * item // n_items


@device
def groups_of_panel(group_bytes):
    return max(1, PANEL_BYTES // group_bytes)


def make_linear_kernel(panel, fields, make_state):
    """The kernel "linear" over `panel`, which gets what `make_state(args, step)` gives as its last argument."""

    @unrolled
    @kernel
    def linear(args, step, item, n_items):
        n_rows, n_out = load_i64(step + load_i64(args + fields.n_rows)), load_i64(args + fields.n_out)
        n_groups = groups_of_panel(load_i64(args + fields.group_bytes))
        end = first_group(n_out, item + 1, n_items)
        state = make_state(args, step)
        for g in range(first_group(n_out, item, n_items), end, n_groups):
            for start in range(0, n_rows, CHUNK_ROWS):
                panel(args, fields, load_i64(args + fields.weight), g, min(end, g + n_groups), 0, start,
                      min(CHUNK_ROWS, n_rows - start), load_i64(args + fields.bias), load_i64(args + fields.residual),
                      state)

    return linear


def make_expert_kernel(panel, fields, make_state):
    """The kernel "expert_linear" over `panel`; `make_state` as for `make_linear_kernel`."""

    @unrolled
    @kernel
    def expert_linear(args, step, item, n_items):
        n_out = load_i64(args + fields.n_out)
        n_groups = groups_of_panel(load_i64(args + fields.group_bytes))
        begin, end = first_group(n_out, item, n_items), first_group(n_out, item + 1, n_items)
        state = make_state(args, step)
        chunk = load_i64(args + fields.chunks)
        last = chunk + load_i64(load_i64(args + fields.n_chunks)) * CHUNK_BYTES
        while chunk < last:
            expert = load_i64(chunk + CHUNK.expert)
            next_expert = end_of_expert(chunk, last)
            weight, bias = expert_weight(args, fields, expert), expert_bias(args, fields, expert)
            for g in range(begin, end, n_groups):
                for c in range(chunk, next_expert, CHUNK_BYTES):
                    panel(args, fields, weight, g, min(end, g + n_groups), load_i64(args + fields.slot_order),
                          load_i64(c + CHUNK.first), load_i64(c + CHUNK.n_rows), bias, 0, state)
            chunk = next_expert

    return expert_linear


def make_panel(rows):
    """The product of the groups g0..g1 at `weight` with the m activation rows that begin at position `start`."""

    @device
    def panel(args, fields, weight, g0, g1, order, start, m, bias, residual, acc):
        n_out, n_blocks = load_i64(args + fields.n_out), load_i64(args + fields.n_blocks)
        group_bytes = load_i64(args + fields.group_bytes)
        at = start * n_blocks
        q, da = load_i64(args + fields.q) + at * 32, load_i64(args + fields.da) + at * 4
        ys, n16 = load_i64(args + fields.ys) + at * 4, load_i64(args + fields.n16) + at * 8
        for g in range(g0, g1):
            clear(acc, m)
            rows(weight + g * group_bytes, n_blocks, m, q, da, ys, n16, acc)
            finish(acc, m, order, start, load_i64(args + fields.out), n_out, g * GROUP_ROWS, bias, residual)

    @device
    def panel_with_tiles(args, fields, weight, g0, g1, order, start, m, bias, residual, acc):
        begin_tiles(acc, m)
        panel(args, fields, weight, g0, g1, order, start, m, bias, residual, acc)
        end_tiles(m)

    return panel_with_tiles if HAS_TILES else panel


@device
def accumulators(args, step):
    return scratch_of(step)


def make_linear(rows):
    """The kernel "linear" of a format whose group product is `rows`."""
    return make_linear_kernel(make_panel(rows), LINEAR, accumulators)


def make_expert_linear(rows):
    """The kernel "expert_linear" of a format whose group product is `rows`."""
    return make_expert_kernel(make_panel(rows), EXPERT_LINEAR, accumulators)
