"""What the `rows` of the packed formats share: reading lines, and the loops over activation rows.

A *line* is 64 bytes, 4 weights of each of 16 rows. A block is 8 weight registers w, where byte 4 r + i of w[k] is
weight 4 k + i of row r. Formats decode two blocks (16 registers), then add their products with every activation row:
the loop that all the time goes to. S, d, da and acc are those of the canonical order (see matmul.py).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ggpy.kernels.cpu.dot import UNSIGNED_BY_SIGNED, dot4_i8, dot4_u7, ready_i8, start_i8, unready_i8
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.simd import (
    as_i8x64,
    as_i32x16,
    broadcast_4xi8,
    broadcast_f32,
    broadcast_i32,
    fma,
    load_f32x16,
    load_i8x64,
    prefetch_l2,
    rotate,
    splat_i8x64,
    splat_i32x16,
    sra,
    store,
    to_f32,
)
from ggpy.kernels.cpu.tile_products import make_tiled
from ggpy.kernels.cpu.tiles import HAS_TILES

LINE = 64
# bytes; kernels that also store want their weights early, and in L2. On Zen 4 4096 and 8192 were up to 25% slower
PREFETCH_AHEAD = 6144


@device
def prefetch_lines(p, n):
    """Asks for lines further on: one for each line consumed, in order and none left out, keeps the memory busy evenly.

    A line that is left out costs the whole latency of the memory, as prefetching keeps the hardware from guessing it.
    """
    for k in range(n):
        prefetch_l2(p + PREFETCH_AHEAD + LINE * k)


@device
def load_4_lines(p):
    return load_i8x64(p), load_i8x64(p + LINE), load_i8x64(p + 2 * LINE), load_i8x64(p + 3 * LINE)


@device
def load_8_lines(p):
    return load_4_lines(p) + load_4_lines(p + 4 * LINE)


@device
def bits(v, shift, mask):
    """(v >> shift) & mask in every byte; bits that cross from byte to byte are masked away."""
    return as_i8x64(as_i32x16(v) >> shift) & splat_i8x64(mask)


@device
def bits_up(v, shift, mask):
    """(v << shift) & mask in every byte."""
    return as_i8x64(as_i32x16(v) << shift) & splat_i8x64(mask)


@device
def low_nibbles(v):
    return (v[0] & splat_i8x64(15), v[1] & splat_i8x64(15), v[2] & splat_i8x64(15), v[3] & splat_i8x64(15))


@device
def high_nibbles(v):
    return bits(v[0], 4, 15), bits(v[1], 4, 15), bits(v[2], 4, 15), bits(v[3], 4, 15)


@device
def two_bits(v, shift):
    """Two bits from `shift` on of every byte of four registers."""
    return bits(v[0], shift, 3), bits(v[1], shift, 3), bits(v[2], shift, 3), bits(v[3], shift, 3)


@device
def moved_bit(h, j, place):
    """Bit j of every byte, as bit `place`, the others 0."""
    return as_i8x64(rotate(as_i32x16(h), place - j)) & splat_i8x64(1 << place)


@device
def with_bit(w, h, j, place):
    """Four registers with bit j of the bytes of h as their bit `place`."""
    return (w[0] | moved_bit(h[0], j, place), w[1] | moved_bit(h[1], j, place),
            w[2] | moved_bit(h[2], j, place), w[3] | moved_bit(h[3], j, place))


@device
def nibbles(p):
    """A block of four lines: weights 4 k + i in their low halves, 16 + 4 k + i in their high halves."""
    v = load_4_lines(p)
    return low_nibbles(v) + high_nibbles(v)


def for_each(function):
    """The function of a block that applies `function` to each of its 8 registers."""

    @device
    def mapped(w):
        return (function(w[0]), function(w[1]), function(w[2]), function(w[3]),
                function(w[4]), function(w[5]), function(w[6]), function(w[7]))

    return mapped


@device
def from_zero(n16):
    return splat_i32x16(0)


def make_half_sums(dot4, start):
    """half_sums(n16, half, y, w): exact sums over the first and the last 16 weights of a block, at y the activations.

    n16 is the address of the first half's sum, `half` the distance to the second's.
    """

    @device
    def half_sums(n16, half, y, w):
        a = dot4(start(n16), w[0], broadcast_4xi8(y))
        c = dot4(start(n16 + half), w[4], broadcast_4xi8(y + 16))
        a = dot4(a, w[1], broadcast_4xi8(y + 4))
        c = dot4(c, w[5], broadcast_4xi8(y + 20))
        a = dot4(a, w[2], broadcast_4xi8(y + 8))
        c = dot4(c, w[6], broadcast_4xi8(y + 24))
        a = dot4(a, w[3], broadcast_4xi8(y + 12))
        c = dot4(c, w[7], broadcast_4xi8(y + 28))
        return a, c

    return half_sums


@device
def as_given(w):
    return w


class Product(NamedTuple):
    """How the weights of a block meet activations: once ready(w), then `sums` of that for every activation row.

    `sums(n16, half, y, w)` are two vectors that add up to the sums over a block; what `make_half_sums` makes keeps its
    halves apart. signed(w) are the weights as they are, in -128..127, for where rows are multiplied in tiles.
    """

    ready: Callable[..., Any]
    sums: Callable[..., Any]
    signed: Callable[..., Any]


half_sums_i8 = make_half_sums(dot4_i8, start_i8)
signed_product = Product(for_each(ready_i8), half_sums_i8, as_given)        # of weights in -128..127
ready_product = Product(as_given, half_sums_i8, for_each(unready_i8))       # of what `ready_i8` makes of them


def biased_product(shift):
    """The product of weights given with a bias, w + (128 >> shift) in 0..127.

    Bias * sum of the activations has to come off. Where one side of a product is unsigned anyway, the bias is made 128,
    once for a block and all rows: what that adds stands in memory as it is. Elsewhere each row shifts it.
    """
    bias = 128 >> shift
    rest = 128 - bias

    @device
    def add_rest(w):
        return w + splat_i8x64(rest)

    @device
    def take_bias(w):
        return w - splat_i8x64(bias)

    @device
    def start(n16):
        return sra(broadcast_i32(n16), shift)

    signed = for_each(take_bias)
    if UNSIGNED_BY_SIGNED:
        return Product(for_each(add_rest), half_sums_i8, signed)
    return Product(as_given, make_half_sums(dot4_u7, start), signed)


@device
def whole_sums_u7(n16, half, y, w):
    """Exact sums of a block with weights in 0..127, in one chain."""
    a = dot4_u7(splat_i32x16(0), w[0], broadcast_4xi8(y))
    a = dot4_u7(a, w[1], broadcast_4xi8(y + 4))
    a = dot4_u7(a, w[2], broadcast_4xi8(y + 8))
    a = dot4_u7(a, w[3], broadcast_4xi8(y + 12))
    a = dot4_u7(a, w[4], broadcast_4xi8(y + 16))
    a = dot4_u7(a, w[5], broadcast_4xi8(y + 20))
    a = dot4_u7(a, w[6], broadcast_4xi8(y + 24))
    return dot4_u7(a, w[7], broadcast_4xi8(y + 28)), splat_i32x16(0)


product_u7 = Product(as_given, whole_sums_u7, as_given)         # of weights in 0..127
halves_u7 = Product(as_given, make_half_sums(dot4_u7, from_zero), as_given)


class Term(NamedTuple):
    """What a block adds to the accumulators of one row, by the canonical order of its format.

    `value(s, n16, half, scales)` is made of the sums s of a block, if `by_halves` those over its first and its last 16
    weights, else any two of the same total. `add(f, v, da, ys, scales)` adds that to the accumulators at f. da, ys and
    n16 are the addresses of what belongs to the row, `half` from one n16 to the next; scales are `n_scales` vectors.
    """

    value: Callable[..., Any]
    add: Callable[..., None]
    n_scales: int
    by_halves: bool


@device
def scaled_total(s, n16, half, scales):
    """RN(S d)."""
    return to_f32(s[0] + s[1]) * scales[0]


@device
def scaled_halves(s, n16, half, scales):
    """RN(S d), S = i0 * first half + i1 * last half, exact in float32."""
    return fma(to_f32(s[1]), scales[2], to_f32(s[0]) * scales[1]) * scales[0]


@device
def add_value(f, v, da, ys, scales):
    """acc = fma(v, da, acc)"""
    store(f, fma(v, broadcast_f32(da), load_f32x16(f)))


@device
def add_with_minimum(f, v, da, ys, scales):
    """acc = fma(m, ys, fma(v, da, acc))"""
    a = fma(v, broadcast_f32(da), load_f32x16(f))
    store(f, fma(scales[1], broadcast_f32(ys), a))


scaled = Term(scaled_total, add_value, 1, by_halves=False)                  # scales: d of 32 weights
with_minimum = Term(scaled_total, add_with_minimum, 2, by_halves=False)     # d and m, for w = d q - m
scaled_16 = Term(scaled_halves, add_value, 3, by_halves=True)               # d, and integers i0 and i1 of 16 weights


def make_add_pair(product, term, gap=1):
    """add_pair(j, n_blocks, m, q, da, ys, n16, acc, w, x, w_scales, x_scales): two of a row's blocks, times m rows.

    Blocks j and j + gap have weights w and x and tuples of scales. The pairs of a row of n_blocks come in order.
    """
    ready, sums, _ = product
    value, add = term.value, term.add

    @device
    def value_of_sums(n16, half, y, w, scales):
        return value(sums(n16, half, y, w), n16, half, scales)

    @device
    def sums_alone(n16, half, y, w, scales):
        return sums(n16, half, y, w)

    @device
    def add_sums(f, s, da, ys, n16, half, scales):
        add(f, value(s, n16, half, scales), da, ys, scales)

    @device
    def add_made(f, v, da, ys, n16, half, scales):
        add(f, v, da, ys, scales)

    # the sums of halves become one value at once, as registers are scarce; others wait for those of the next block
    first, then = (value_of_sums, add_made) if term.by_halves else (sums_alone, add_sums)

    @device
    def add_rows(start, j, m, q, da, ys, n16, acc, w, x, w_scales, x_scales):
        """The rows of activations from `start` on."""
        w, x = ready(w), ready(x)
        f0 = acc + (j % 8) * (64 * m)
        f1 = f0 + gap * (64 * m)
        for t in range(start, m):
            s0 = j * m + t
            s1 = s0 + gap * m
            n0, n1, half = n16 + (s0 + j * m) * 4, n16 + (s1 + (j + gap) * m) * 4, m * 4
            a = first(n0, half, q + s0 * 32, w, w_scales)
            b = first(n1, half, q + s1 * 32, x, x_scales)
            then(f0 + t * 64, a, da + s0 * 4, ys + s0 * 4, n0, half, w_scales)
            then(f1 + t * 64, b, da + s1 * 4, ys + s1 * 4, n1, half, x_scales)

    @device
    def add_pair(j, n_blocks, m, q, da, ys, n16, acc, w, x, w_scales, x_scales):
        add_rows(0, j, m, q, da, ys, n16, acc, w, x, w_scales, x_scales)

    return make_tiled(product.signed, term, gap, add_rows) if HAS_TILES else add_pair
