"""Sums, scaling, soft capping, softmax and the choice of rows: kernels that do little with each value.

Rows lie without gaps, so a matrix is one run of values that items share in multiples of a vector.
"""

from ggpy.kernels.cpu.arguments import ADD, SCALE, SOFTCAP, SOFTMAX, TAKE_ROWS
from ggpy.kernels.cpu.exp import exp, tanh
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import (
    keep_first,
    load_f32,
    load_first,
    load_i32,
    load_i64,
    max_lanes,
    maximum,
    splat_f32x16,
    store_first,
    sum_lanes,
)
from ggpy.kernels.cpu.step import STEP

LANES = 16
LOWEST = -3.0e38


@device
def share(n, item, n_items):
    """The part of n values that an item has: (start, end), start a multiple of LANES."""
    n_vectors = (n + LANES - 1) // LANES
    return n_vectors * item // n_items * LANES, min(n, n_vectors * (item + 1) // n_items * LANES)


@device
def n_values(args, fields, step):
    return load_i64(step + load_i64(args + fields.n_rows)) * load_i64(args + fields.width)


@kernel
def add(args, step, item, n_items):
    """out = a + b"""
    a, b, out = load_i64(args + ADD.a), load_i64(args + ADD.b), load_i64(args + ADD.out)
    start, end = share(n_values(args, ADD, step), item, n_items)
    for i in range(start, end, LANES):
        n = end - i
        store_first(out + 4 * i, n, load_first(a + 4 * i, n) + load_first(b + 4 * i, n))


@kernel
def scale(args, step, item, n_items):
    """out = x * factor"""
    x, out = load_i64(args + SCALE.x), load_i64(args + SCALE.out)
    factor = load_f32(args + SCALE.factor)
    start, end = share(n_values(args, SCALE, step), item, n_items)
    for i in range(start, end, LANES):
        store_first(out + 4 * i, end - i, load_first(x + 4 * i, end - i) * factor)


@kernel
def softcap(args, step, item, n_items):
    """out = cap * tanh(x / cap)"""
    x, out = load_i64(args + SOFTCAP.x), load_i64(args + SOFTCAP.out)
    cap = load_f32(args + SOFTCAP.cap)
    start, end = share(n_values(args, SOFTCAP, step), item, n_items)
    for i in range(start, end, LANES):
        store_first(out + 4 * i, end - i, tanh(load_first(x + 4 * i, end - i) / splat_f32x16(cap)) * cap)


@kernel
def softmax(args, step, item, n_items):
    """out = e^x / sum of e^x in each row; items share the rows."""
    n_rows, width = load_i64(step + load_i64(args + SOFTMAX.n_rows)), load_i64(args + SOFTMAX.width)
    for row in range(n_rows * item // n_items, n_rows * (item + 1) // n_items):
        x, out = load_i64(args + SOFTMAX.x) + row * width * 4, load_i64(args + SOFTMAX.out) + row * width * 4
        top = splat_f32x16(LOWEST)
        for i in range(0, width, LANES):
            top = maximum(top, keep_first(load_first(x + 4 * i, width - i), width - i, splat_f32x16(LOWEST)))
        highest = max_lanes(top)
        total = splat_f32x16(0.0)
        for i in range(0, width, LANES):
            p = keep_first(exp(load_first(x + 4 * i, width - i) - highest), width - i, splat_f32x16(0.0))
            store_first(out + 4 * i, width - i, p)
            total = total + p
        divisor = splat_f32x16(sum_lanes(total))
        for i in range(0, width, LANES):
            store_first(out + 4 * i, width - i, load_first(out + 4 * i, width - i) / divisor)


@kernel
def take_rows(args, step, item, n_items):
    """Row i of out is row output_rows[i] of x; items share the rows."""
    n_outputs = load_i64(step + STEP.n_outputs)
    width = load_i64(args + TAKE_ROWS.width)
    for row in range(n_outputs * item // n_items, n_outputs * (item + 1) // n_items):
        x = load_i64(args + TAKE_ROWS.x) + load_i32(load_i64(step + STEP.output_rows) + 4 * row) * width * 4
        out = load_i64(args + TAKE_ROWS.out) + row * width * 4
        for i in range(0, width, LANES):
            store_first(out + 4 * i, width - i, load_first(x + 4 * i, width - i))
