"""What low-rank adapters add to a product: out += scale * b (a x), for the rows that ask for it.

    products[r] = scale * sum over k of a[r, k] * x[k]:  four sums of 16 lanes, then the lanes
    out[j] += sum over r ascending of b[r, j] * products[r]

It involves one row and one adapter at a time, so the bits of a row never depend on its company; rows that ask for
nothing are not touched. Threads share the rows.
"""

from ggpy.kernels.cpu.arguments import LOW_RANK, LOW_RANK_TERM, WORD
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import (
    fma,
    load_f32,
    load_f32x16,
    load_first,
    load_i32,
    load_i64,
    splat_f32x16,
    store_f32,
    store_first,
    sum_lanes,
)
from ggpy.kernels.cpu.step import STEP

LANES = 16
LINE = 64               # bytes of a vector
TERM_BYTES = WORD * len(LOW_RANK_TERM._fields)


@device
def dot(a, x, n):
    """The sum of the products of the floats a (n,) and x (n,)."""
    s, t, u, v = splat_f32x16(0.0), splat_f32x16(0.0), splat_f32x16(0.0), splat_f32x16(0.0)
    whole = n // (4 * LANES) * (4 * LANES)
    for k in range(0, whole, 4 * LANES):
        p, y = a + 4 * k, x + 4 * k
        s = fma(load_f32x16(p), load_f32x16(y), s)
        t = fma(load_f32x16(p + LINE), load_f32x16(y + LINE), t)
        u = fma(load_f32x16(p + 2 * LINE), load_f32x16(y + 2 * LINE), u)
        v = fma(load_f32x16(p + 3 * LINE), load_f32x16(y + 3 * LINE), v)
    for k in range(whole, n, LANES):
        s = fma(load_first(a + 4 * k, n - k), load_first(x + 4 * k, n - k), s)
    return sum_lanes((s + u) + (t + v))


@device
def add_term(term, scale, x, n_in, out, n_out, products):
    """Adds one adapter's part to one row; `products` has room for a float of each rank."""
    a, b, rank = load_i64(term + LOW_RANK_TERM.a), load_i64(term + LOW_RANK_TERM.b), load_i64(term + LOW_RANK_TERM.rank)
    for r in range(rank):
        store_f32(products + 4 * r, dot(a + 4 * r * n_in, x, n_in) * scale)
    for j in range(0, n_out, LANES):
        n, total = n_out - j, splat_f32x16(0.0)
        for r in range(rank):
            total = fma(load_first(b + 4 * (r * n_out + j), n), splat_f32x16(load_f32(products + 4 * r)), total)
        store_first(out + 4 * j, n, load_first(out + 4 * j, n) + total)


@kernel
def add(args, step, item, n_items):
    """out += scale * b (a x) of every adapter that a row has a scale for."""
    n_rows, n_adapters = load_i64(step + load_i64(args + LOW_RANK.n_rows)), load_i64(args + LOW_RANK.n_adapters)
    n_in, n_out = load_i64(args + LOW_RANK.n_in), load_i64(args + LOW_RANK.n_out)
    for row in range(n_rows * item // n_items, n_rows * (item + 1) // n_items):
        token = row
        if load_i64(args + LOW_RANK.row_is_output) != 0:
            token = load_i32(load_i64(step + STEP.output_rows) + 4 * row)
        x, out = load_i64(args + LOW_RANK.x) + 4 * row * n_in, load_i64(args + LOW_RANK.out) + 4 * row * n_out
        for i in range(n_adapters):
            term = load_i64(args + LOW_RANK.terms) + TERM_BYTES * i
            scale = load_f32(load_i64(args + LOW_RANK.scales) + 4 * (token * n_adapters + i))
            if scale != 0.0 and load_i64(term + LOW_RANK_TERM.a) != 0:
                add_term(term, scale, x, n_in, out, n_out, load_i64(step + STEP.scratch))
