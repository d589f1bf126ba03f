"""Linears over weights that stay as they lie in the file: no memory beyond the file's own pages, the same bits.

A few rows of activations are multiplied directly, where the format can (see file_units.py): a row of weights is read
from end to end, a lane for each of eight blocks, which are the eight partial sums of the canonical order. For more
rows, or in other formats, each group is packed into work memory when it is needed and meets the `rows` of packed
weights.
"""

from ggpy.kernels.cpu.arguments import ARRANGED, ARRANGED_BYTES, CHUNK_ROWS, DIRECT_ROWS, GROUP_ROWS, LINEAR_BYTES
from ggpy.kernels.cpu.arguments import FILE_UNIT_BLOCKS as UNIT_BLOCKS
from ggpy.kernels.cpu.arguments import MAPPED_LINEAR as ARGS
from ggpy.kernels.cpu.kernel import device, kernel, unrolled
from ggpy.kernels.cpu.lanes8 import splat_f32x8
from ggpy.kernels.cpu.matmul import first_group, make_panel, scratch_of, store_columns
from ggpy.kernels.cpu.simd import (
    keep_first,
    load_f32,
    load_f32x16,
    load_i32,
    load_i64,
    load_u16,
    prefetch_l1,
    prefetch_l2,
    store_f32,
    store_i32,
    store_i64,
    store_u16,
    sum_lanes,
)

LINE = 64
PREFETCH_AHEAD = 2048           # bytes
ROWS_AT_ONCE = 4
TAIL = 64 * DIRECT_ROWS         # of a thread's scratch: behind the sums of a group, a copy of the last file unit
ACTIVATIONS = LINEAR_BYTES        # then the activations, unit by unit


@device
def arrange(args, n_rows, n_units, y):
    """The activations of all rows as the direct products read them: of each unit, ARRANGED_BYTES for each row."""
    n_blocks = load_i64(args + ARGS.n_blocks)
    q, da = load_i64(args + ARGS.q), load_i64(args + ARGS.da)
    ys, n16 = load_i64(args + ARGS.ys), load_i64(args + ARGS.n16)
    for j in range(min(n_blocks, n_units * UNIT_BLOCKS)):
        b = j % UNIT_BLOCKS
        for t in range(n_rows):
            unit = y + (j // UNIT_BLOCKS * n_rows + t) * ARRANGED_BYTES
            at = j * n_rows + t
            half = n16 + (at + j * n_rows) * 4
            for k in range(4):
                store_i64(unit + ARRANGED.q + 64 * k + 8 * b, load_i64(q + 32 * at + 8 * k))
            store_f32(unit + ARRANGED.da + 4 * b, load_f32(da + 4 * at))
            store_f32(unit + ARRANGED.ys + 4 * b, load_f32(ys + 4 * at))
            store_i32(unit + ARRANGED.n16 + 4 * b, load_i32(half))
            store_i32(unit + ARRANGED.n16_last + 4 * b, load_i32(half + 4 * n_rows))


@device
def copy(source, n_bytes, to):
    """An even number of bytes."""
    for i in range(0, n_bytes, 2):
        store_u16(to + i, load_u16(source + i))


def make_products(unit_bytes, decode, add):
    """The products of a row of weights at p with one and with four rows of activations at y, `y_bytes` a unit.

    The row has `n_units` whole units, and behind them at `tail` one of which `n_tail` blocks count.
    """

    @device
    def prefetch(p):
        for i in range(0, unit_bytes, LINE):
            prefetch_l1(p + PREFETCH_AHEAD + i)

    @device
    def add_to_four(acc, y, w, scales):
        return (add(acc[0], y, w, scales), add(acc[1], y + ARRANGED_BYTES, w, scales),
                add(acc[2], y + 2 * ARRANGED_BYTES, w, scales), add(acc[3], y + 3 * ARRANGED_BYTES, w, scales))

    @device
    def one_row(p, n_units, tail, n_tail, y, y_bytes):
        acc = splat_f32x8(0.0)
        for _ in range(n_units):
            prefetch(p)
            w, scales = decode(p)
            acc = add(acc, y, w, scales)
            p += unit_bytes
            y += y_bytes
        if n_tail > 0:
            w, scales = decode(tail)
            acc = keep_first(add(acc, y, w, scales), n_tail, acc)
        return sum_lanes(acc)

    @device
    def four_rows(p, n_units, tail, n_tail, y, y_bytes):
        zero = splat_f32x8(0.0)
        acc = zero, zero, zero, zero
        for _ in range(n_units):
            prefetch(p)
            w, scales = decode(p)
            acc = add_to_four(acc, y, w, scales)
            p += unit_bytes
            y += y_bytes
        if n_tail > 0:
            w, scales = decode(tail)
            a, b, c, d = add_to_four(acc, y, w, scales)
            acc = (keep_first(a, n_tail, acc[0]), keep_first(b, n_tail, acc[1]),
                   keep_first(c, n_tail, acc[2]), keep_first(d, n_tail, acc[3]))
        return sum_lanes(acc[0]), sum_lanes(acc[1]), sum_lanes(acc[2]), sum_lanes(acc[3])

    return one_row, four_rows


def make_direct(unit_bytes, decode, add):
    """The function that multiplies groups begin..end of the weights, as they lie, with up to DIRECT_ROWS rows."""
    one_row, four_rows = make_products(unit_bytes, decode, add)
    block_bytes = unit_bytes // UNIT_BLOCKS

    @device
    def weight_row(p, row_bytes, end, n_rows, y, sums):
        """The results of one row of weights, GROUP_ROWS floats apart; the weights end at `end`."""
        n_units = row_bytes // unit_bytes
        tail, n_tail = p + n_units * unit_bytes, row_bytes % unit_bytes // block_bytes
        if n_tail > 0 and tail + unit_bytes > end:
            copy(tail, n_tail * block_bytes, sums + TAIL)
            tail = sums + TAIL
        for t in range(0, n_rows - 1, ROWS_AT_ONCE):        # two or three rows are cheaper as four than one by one
            v = four_rows(p, n_units, tail, n_tail, y + t * ARRANGED_BYTES, n_rows * ARRANGED_BYTES)
            store_f32(sums + 64 * t, v[0])
            store_f32(sums + 64 * t + 64, v[1])
            store_f32(sums + 64 * t + 128, v[2])
            store_f32(sums + 64 * t + 192, v[3])
        if n_rows % ROWS_AT_ONCE == 1:
            t = n_rows - 1
            store_f32(sums + 64 * t, one_row(p, n_units, tail, n_tail, y + t * ARRANGED_BYTES, n_rows * ARRANGED_BYTES))

    @device
    def direct(args, begin, end, n_rows, scratch):
        n_out, row_bytes = load_i64(args + ARGS.n_out), load_i64(args + ARGS.row_bytes)
        weight, y = load_i64(args + ARGS.weight), scratch + ACTIVATIONS
        arrange(args, n_rows, (row_bytes + unit_bytes - 1) // unit_bytes, y)
        for g in range(begin, end):
            first = g * GROUP_ROWS
            for r in range(first, min(n_out, first + GROUP_ROWS)):
                weight_row(weight + r * row_bytes, row_bytes, weight + n_out * row_bytes, n_rows, y,
                           scratch + 4 * (r - first))
            for t in range(n_rows):
                store_columns(load_f32x16(scratch + 64 * t), t, load_i64(args + ARGS.out), n_out, first,
                              load_i64(args + ARGS.bias), load_i64(args + ARGS.residual))

    return direct


def make_packed_anew(pack_group, rows):
    """The function that packs each of the groups begin..end and multiplies it with any number of rows."""
    panel = make_panel(rows)

    @device
    def packed_anew(args, begin, end, n_rows, scratch):
        n_out, stride = load_i64(args + ARGS.n_out), load_i64(args + ARGS.row_bytes)
        packed = scratch + LINEAR_BYTES
        for g in range(begin, end):
            source = load_i64(args + ARGS.weight) + g * GROUP_ROWS * stride
            for i in range(0, GROUP_ROWS * stride, LINE):
                prefetch_l2(source + GROUP_ROWS * stride + i)               # the next group
            pack_group(source, stride, min(GROUP_ROWS, n_out - g * GROUP_ROWS), packed)
            weight = packed - g * load_i64(args + ARGS.group_bytes)         # where group 0 would be
            for start in range(0, n_rows, CHUNK_ROWS):
                panel(args, ARGS, weight, g, g + 1, 0, start, min(CHUNK_ROWS, n_rows - start),
                      load_i64(args + ARGS.bias), load_i64(args + ARGS.residual), scratch)

    return packed_anew


def few_or_many(few, many):
    """`few` for up to DIRECT_ROWS rows of activations, `many` for more."""

    @device
    def multiply(args, begin, end, n_rows, scratch):
        if n_rows <= DIRECT_ROWS:
            few(args, begin, end, n_rows, scratch)
        else:
            many(args, begin, end, n_rows, scratch)

    return multiply


def make_mapped_linear(pack_group, rows, direct=None):
    """The kernel "mapped_linear" of a format: `direct`, if it has one, `pack_group` as `pack` uses it, and `rows`."""
    packed_anew = make_packed_anew(pack_group, rows)
    multiply = packed_anew if direct is None else few_or_many(direct, packed_anew)

    @unrolled
    @kernel
    def mapped_linear(args, step, item, n_items):
        n_rows, n_out = load_i64(step + load_i64(args + ARGS.n_rows)), load_i64(args + ARGS.n_out)
        if n_rows > 0:
            first, end = first_group(n_out, item, n_items), first_group(n_out, item + 1, n_items)
            multiply(args, first, end, n_rows, scratch_of(step))

    return mapped_linear
