"""out = x @ weight.T (+ bias) (+ residual) for weights that are floating-point numbers, in float32 arithmetic.

Packed, a group of GROUP_ROWS rows is n_in columns of 16 numbers, in the type that they have in the file. A format gives
`load`, which reads a column as float32 exactly. The order of one output:

    for column k ascending:  acc[k % 4] = fma(w[k], x[k], acc[k % 4])
    result = (acc0 + acc2) + (acc1 + acc3)  (+ bias) (+ residual)

It involves one row of weights and one of activations, so the bits of a row never depend on its company. How threads,
panels and experts share the work is said in matmul.py.
"""

from ggpy.kernels.cpu.arguments import EXPERT_FLOAT_LINEAR, FLOAT_LINEAR, GROUP_ROWS
from ggpy.kernels.cpu.arguments import PACK as PACK_ARGS
from ggpy.kernels.cpu.interleave import interleave, interleave_half, interleave_word
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.matmul import (
    first_group,
    make_expert_kernel,
    make_linear_kernel,
    row_at,
    store_columns,
)
from ggpy.kernels.cpu.simd import broadcast_f32, fma, load_i16x32, load_i64, prefetch_l1, shuffle1, splat_f32x16, store
from ggpy.kernels.cpu.vectors import i16x32

LINE = 64
PREFETCH_AHEAD = 2048           # bytes
ROWS_AT_ONCE = 4                # with four sums each they fill half of AVX512's registers

even_then_odd = shuffle1(i16x32, [*range(0, 32, 2), *range(1, 32, 2)])


@device
def zeros_4():
    return splat_f32x16(0.0), splat_f32x16(0.0), splat_f32x16(0.0), splat_f32x16(0.0)


@device
def column(w, x, at, sums):
    """One column of weights times a value of each of four rows; x are the rows' addresses."""
    return (fma(w, broadcast_f32(x[0] + at), sums[0]), fma(w, broadcast_f32(x[1] + at), sums[1]),
            fma(w, broadcast_f32(x[2] + at), sums[2]), fma(w, broadcast_f32(x[3] + at), sums[3]))


def make_products(load, size):
    """The products of one group with one row and with four rows; `size` bytes hold a weight."""
    stride = GROUP_ROWS * size

    @device
    def prefetch(p):
        for i in range(0, 4 * stride, LINE):
            prefetch_l1(p + PREFETCH_AHEAD + i)

    @device
    def one_row(w, n_in, x):
        a, b, c, d = zeros_4()
        whole = n_in // 4 * 4
        for k in range(0, whole, 4):
            p, y = w + k * stride, x + 4 * k
            prefetch(p)
            a, b = fma(load(p), broadcast_f32(y), a), fma(load(p + stride), broadcast_f32(y + 4), b)
            c, d = (fma(load(p + 2 * stride), broadcast_f32(y + 8), c),
                    fma(load(p + 3 * stride), broadcast_f32(y + 12), d))
        p, y = w + whole * stride, x + 4 * whole
        if n_in > whole:
            a = fma(load(p), broadcast_f32(y), a)
        if n_in > whole + 1:
            b = fma(load(p + stride), broadcast_f32(y + 4), b)
        if n_in > whole + 2:
            c = fma(load(p + 2 * stride), broadcast_f32(y + 8), c)
        return (a + c) + (b + d)

    @device
    def four_rows(w, n_in, x):
        a, b, c, d = zeros_4(), zeros_4(), zeros_4(), zeros_4()
        whole = n_in // 4 * 4
        for k in range(0, whole, 4):
            p, at = w + k * stride, 4 * k
            prefetch(p)
            a, b = column(load(p), x, at, a), column(load(p + stride), x, at + 4, b)
            c, d = column(load(p + 2 * stride), x, at + 8, c), column(load(p + 3 * stride), x, at + 12, d)
        p, at = w + whole * stride, 4 * whole
        if n_in > whole:
            a = column(load(p), x, at, a)
        if n_in > whole + 1:
            b = column(load(p + stride), x, at + 4, b)
        if n_in > whole + 2:
            c = column(load(p + 2 * stride), x, at + 8, c)
        return ((a[0] + c[0]) + (b[0] + d[0]), (a[1] + c[1]) + (b[1] + d[1]),
                (a[2] + c[2]) + (b[2] + d[2]), (a[3] + c[3]) + (b[3] + d[3]))

    return one_row, four_rows


def make_panel(load, size):
    """The product of the groups g0..g1 at `weight` with the m rows that begin at position `start` of `order`.

    A row of out has its activations in row (its number // rows_per_x) of x.
    """
    one_row, four_rows = make_products(load, size)

    @device
    def panel(args, fields, weight, g0, g1, order, start, m, bias, residual, rows_per_x):
        n_in, n_out = load_i64(args + fields.n_in), load_i64(args + fields.n_out)
        x, out = load_i64(args + fields.x), load_i64(args + fields.out)
        fours = m // ROWS_AT_ONCE * ROWS_AT_ONCE
        for g in range(g0, g1):
            w = weight + g * load_i64(args + fields.group_bytes)
            first = g * GROUP_ROWS
            for t in range(start, start + fours, ROWS_AT_ONCE):
                i, j, k, n = row_at(order, t), row_at(order, t + 1), row_at(order, t + 2), row_at(order, t + 3)
                v = four_rows(w, n_in, (
                    x + i // rows_per_x * n_in * 4, x + j // rows_per_x * n_in * 4,
                    x + k // rows_per_x * n_in * 4, x + n // rows_per_x * n_in * 4))
                store_columns(v[0], i, out, n_out, first, bias, residual)
                store_columns(v[1], j, out, n_out, first, bias, residual)
                store_columns(v[2], k, out, n_out, first, bias, residual)
                store_columns(v[3], n, out, n_out, first, bias, residual)
            for t in range(start + fours, start + m):
                i = row_at(order, t)
                v = one_row(w, n_in, x + i // rows_per_x * n_in * 4)
                store_columns(v, i, out, n_out, first, bias, residual)

    return panel


@device
def one_per_x(args, step):
    return 1


@device
def slots_per_x(args, step):
    return 1 if load_i64(args + EXPERT_FLOAT_LINEAR.x_per_slot) != 0 else load_i64(args + EXPERT_FLOAT_LINEAR.n_used)


def make_linear(load, size):
    """The kernel "linear" of a floating-point format."""
    return make_linear_kernel(make_panel(load, size), FLOAT_LINEAR, one_per_x)


def make_expert_linear(load, size):
    """The kernel "expert_linear" of a floating-point format."""
    return make_expert_kernel(make_panel(load, size), EXPERT_FLOAT_LINEAR, slots_per_x)


@device
def pack_words(source, row_bytes, n, n_in, packed):
    """Columns of 4-byte numbers of n rows."""
    whole = n_in // 4 * 4
    for k in range(0, whole, 4):
        interleave(source + 4 * k, row_bytes, n, packed + k * LINE)
    for k in range(whole, n_in):
        interleave_word(source + 4 * k, row_bytes, n, packed + k * LINE)


@device
def pack_halves(source, row_bytes, n, n_in, packed):
    """Columns of 2-byte numbers of n rows: interleaved as words of two columns, which are then parted."""
    whole = n_in // 8 * 8
    for k in range(0, whole, 8):
        p = packed + k * LINE // 2
        interleave(source + 2 * k, row_bytes, n, p)
        for i in range(0, 4 * LINE, LINE):
            store(p + i, even_then_odd(load_i16x32(p + i)))
    for k in range(whole, n_in):
        interleave_half(source + 2 * k, row_bytes, n, packed + k * LINE // 2)


def make_pack(size):
    """The kernel "pack" for numbers of `size` bytes; rows that the last group lacks are zeros."""
    pack_group = pack_words if size == 4 else pack_halves

    @kernel
    def pack(args, step, item, n_items):
        n_out, n_in = load_i64(args + PACK_ARGS.n_out), load_i64(args + PACK_ARGS.n_in)
        row_bytes = load_i64(args + PACK_ARGS.row_bytes)
        for g in range(first_group(n_out, item, n_items), first_group(n_out, item + 1, n_items)):
            pack_group(load_i64(args + PACK_ARGS.source) + g * GROUP_ROWS * row_bytes, row_bytes,
                       min(GROUP_ROWS, n_out - g * GROUP_ROWS), n_in,
                       load_i64(args + PACK_ARGS.packed) + g * n_in * (GROUP_ROWS * size))

    return pack
