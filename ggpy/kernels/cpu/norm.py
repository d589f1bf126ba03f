"""RMS norm and layer norm of the `groups` equal parts of every row; n is the width of a part.

    rms:    out = x * s * weight                    s = 1 / sqrt(sum(x^2) / n + eps)
    layer:  out = (x - mean) * s * weight + bias    s = 1 / sqrt(sum((x - mean)^2) / n + eps),  mean = sum(x) / n

Sums are taken in 64 partial sums (four accumulators of 16 lanes) and a tree, in an order that n alone decides.
"""

import numpy as np

from ggpy.kernels.cpu.arguments import BLOCK
from ggpy.kernels.cpu.arguments import LAYER_NORM as LAYER
from ggpy.kernels.cpu.arguments import RMS_NORM as RMS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.quantize import quantize_row
from ggpy.kernels.cpu.simd import (
    fma,
    keep_first,
    load_f32,
    load_f32x16,
    load_first,
    load_i64,
    splat_f32x16,
    sqrt,
    store_first,
    sum_lanes,
)


@device
def total(x, n):
    """Sum of n floats at x."""
    a = c = d = e = splat_f32x16(0.0)
    whole = n // 64 * 64
    for i in range(0, whole, 64):
        p = x + 4 * i
        a = a + load_f32x16(p)
        c = c + load_f32x16(p + 64)
        d = d + load_f32x16(p + 128)
        e = e + load_f32x16(p + 192)
    for i in range(whole, n, 16):
        a, c, d, e = c, d, e, a + load_first(x + 4 * i, n - i)
    return sum_lanes((a + d) + (c + e))


@device
def squares(x, n, mean):
    """Sum of (x - mean)^2 over n floats at x."""
    a = c = d = e = splat_f32x16(0.0)
    shift = splat_f32x16(mean)
    whole = n // 64 * 64
    for i in range(0, whole, 64):
        p = x + 4 * i
        u, v = load_f32x16(p) - shift, load_f32x16(p + 64) - shift
        w, y = load_f32x16(p + 128) - shift, load_f32x16(p + 192) - shift
        a, c, d, e = fma(u, u, a), fma(v, v, c), fma(w, w, d), fma(y, y, e)
    for i in range(whole, n, 16):
        u = keep_first(load_first(x + 4 * i, n - i) - shift, n - i, splat_f32x16(0.0))
        a, c, d, e = c, d, e, fma(u, u, a)
    return sum_lanes((a + d) + (c + e))


@device
def affine(x, n, mean, scale, weight, bias, out):
    """(x - mean) * scale * weight + bias of n floats; weight and bias are left out where their address is 0."""
    for i in range(0, n, 16):
        at = 4 * i
        v = (load_first(x + at, n - i) - mean) * scale
        if weight != 0:
            v = v * load_first(weight + at, n - i)
        if bias != 0:
            v = v + load_first(bias + at, n - i)
        store_first(out + at, n - i, v)


@device
def inverse_deviation(square_sum, n, eps):
    return np.float32(1.0) / sqrt(square_sum / np.float32(n) + eps)


@device
def leave_int8(args, fields, row, n_rows, width):
    """The int8 form of the row of `out` just written."""
    quantize_row(load_i64(args + fields.out) + row * width * 4, row, n_rows, load_i64(args + fields.n_blocks),
                 width // BLOCK, load_i64(args + fields.q), load_i64(args + fields.da), load_i64(args + fields.ys),
                 load_i64(args + fields.n16))


@kernel
def rms(args, step, item, n_items):
    """Items share whole rows if these are wanted in int8 as well, else single groups."""
    n_rows = load_i64(step + load_i64(args + RMS.n_rows))
    groups = load_i64(args + RMS.groups)
    width = load_i64(args + RMS.width)
    n = width // groups
    eps = load_f32(args + RMS.eps)
    int8 = load_i64(args + RMS.q) != 0
    per_unit = groups if int8 else 1
    n_units = n_rows * groups // per_unit
    for unit in range(n_units * item // n_items, n_units * (item + 1) // n_items):
        for part in range(unit * per_unit, (unit + 1) * per_unit):
            x = load_i64(args + RMS.x) + part * n * 4
            weight = load_i64(args + RMS.weight)
            if weight != 0:
                weight += part % groups * load_i64(args + RMS.weight_stride) * 4
            scale = inverse_deviation(squares(x, n, np.float32(0.0)), n, eps)
            affine(x, n, np.float32(0.0), scale, weight, 0, load_i64(args + RMS.out) + part * n * 4)
        if int8:
            leave_int8(args, RMS, unit, n_rows, width)


@kernel
def layer(args, step, item, n_items):
    """Threads share the rows."""
    n_rows = load_i64(step + load_i64(args + LAYER.n_rows))
    groups = load_i64(args + LAYER.groups)
    width = load_i64(args + LAYER.width)
    n = width // groups
    eps = load_f32(args + LAYER.eps)
    weight = load_i64(args + LAYER.weight)
    bias = load_i64(args + LAYER.bias)
    for row in range(n_rows * item // n_items, n_rows * (item + 1) // n_items):
        for group in range(groups):
            at = (row * groups + group) * n * 4
            x = load_i64(args + LAYER.x) + at
            mean = total(x, n) / np.float32(n)
            scale = inverse_deviation(squares(x, n, mean), n, eps)
            affine(x, n, mean, scale, weight + group * n * 4 if weight != 0 else 0,
                   bias + group * n * 4 if bias != 0 else 0, load_i64(args + LAYER.out) + at)
        if load_i64(args + LAYER.q) != 0:
            leave_int8(args, LAYER, row, n_rows, width)
