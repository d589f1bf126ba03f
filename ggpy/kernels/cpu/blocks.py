"""What the `rows` of the packed formats share: reading lines, and the loops over activation rows.

A *line* is 64 bytes, 4 weights of each of 16 rows. A block is 8 weight registers w, where byte 4 r + i of w[k] is
weight 4 k + i of row r. Formats decode two blocks (16 registers), then add their products with every activation row:
the loop that all the time goes to. S, d, da and acc are those of the canonical order (see matmul.py).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from ggpy.kernels.cpu.dot import UNSIGNED_BY_SIGNED, dot4_i8, dot4_u7, ready_i8, start_i8
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
    """How the weights of a block meet activations: once ready(w), then half_sums of that for every activation row."""

    ready: Callable[..., Any]
    half_sums: Callable[..., Any]       # see make_half_sums


half_sums_i8 = make_half_sums(dot4_i8, start_i8)
signed_product = Product(for_each(ready_i8), half_sums_i8)      # of weights in -128..127
ready_product = Product(as_given, half_sums_i8)                 # of what `ready_i8` makes of them


def biased_product(shift):
    """The product of weights given with a bias, w + (128 >> shift) in 0..127.

    Bias * sum of the activations has to come off. Where one side of a product is unsigned anyway, the bias is made 128,
    once for a block and all rows: what that adds stands in memory as it is. Elsewhere each row shifts it.
    """
    rest = 128 - (128 >> shift)

    @device
    def add_rest(w):
        return w + splat_i8x64(rest)

    @device
    def start(n16):
        return sra(broadcast_i32(n16), shift)

    if UNSIGNED_BY_SIGNED:
        return Product(for_each(add_rest), half_sums_i8)
    return Product(as_given, make_half_sums(dot4_u7, start))


def make_add_pair(product):
    """For formats with one scale per 32 weights: acc[j % 8] = fma(RN(S d), da[j], acc[j % 8]), S by `product`.

    Blocks j and j + 1 have weights w and x and scales d0 and d1, float32 x 16.
    """
    ready, half_sums = product

    @device
    def add_pair(j, m, q, da, n16, acc, w, x, d0, d1):
        w, x = ready(w), ready(x)
        f0 = acc + (j % 8) * (64 * m)
        f1 = f0 + 64 * m
        for t in range(m):
            s0 = j * m + t
            s1 = s0 + m
            a, c = half_sums(n16 + (s0 + j * m) * 4, m * 4, q + s0 * 32, w)
            b, e = half_sums(n16 + (s1 + j * m + m) * 4, m * 4, q + s1 * 32, x)
            store(f0 + t * 64, fma(to_f32(a + c) * d0, broadcast_f32(da + s0 * 4), load_f32x16(f0 + t * 64)))
            store(f1 + t * 64, fma(to_f32(b + e) * d1, broadcast_f32(da + s1 * 4), load_f32x16(f1 + t * 64)))

    return add_pair


sums_u7 = make_half_sums(dot4_u7, from_zero)


@device
def block_sum_u7(y, w):
    """Exact sums of a block with weights in 0..127, in one chain."""
    a = dot4_u7(splat_i32x16(0), w[0], broadcast_4xi8(y))
    a = dot4_u7(a, w[1], broadcast_4xi8(y + 4))
    a = dot4_u7(a, w[2], broadcast_4xi8(y + 8))
    a = dot4_u7(a, w[3], broadcast_4xi8(y + 12))
    a = dot4_u7(a, w[4], broadcast_4xi8(y + 16))
    a = dot4_u7(a, w[5], broadcast_4xi8(y + 20))
    a = dot4_u7(a, w[6], broadcast_4xi8(y + 24))
    return dot4_u7(a, w[7], broadcast_4xi8(y + 28))


@device
def add_pair_with_minimum(j, m, q, da, ys, acc, w, x, d0, d1, m0, m1):
    """For w = d q - m, q in 0..127: acc[j % 8] = fma(m, ys[j], fma(RN(S d), da[j], acc[j % 8]))."""
    f0 = acc + (j % 8) * (64 * m)
    f1 = f0 + 64 * m
    for t in range(m):
        s0 = j * m + t
        s1 = s0 + m
        a = block_sum_u7(q + s0 * 32, w)
        b = block_sum_u7(q + s1 * 32, x)
        v = fma(to_f32(a) * d0, broadcast_f32(da + s0 * 4), load_f32x16(f0 + t * 64))
        store(f0 + t * 64, fma(m0, broadcast_f32(ys + s0 * 4), v))
        v = fma(to_f32(b) * d1, broadcast_f32(da + s1 * 4), load_f32x16(f1 + t * 64))
        store(f1 + t * 64, fma(m1, broadcast_f32(ys + s1 * 4), v))


def make_add_pair_16(gap, product):
    """For formats with integer scales per 16 weights: S = s[0] * first half + s[1] * last half, exact in float32.

    The halves are summed by `product`. Blocks j and j + gap have weights w and x, integer scales s and r (two
    float32 x 16 each) and one d.
    """
    ready, half_sums = product

    @device
    def add_pair(j, m, q, da, n16, acc, w, x, d, s, r):
        w, x = ready(w), ready(x)
        f0 = acc + (j % 8) * (64 * m)
        f1 = f0 + gap * (64 * m)
        for t in range(m):
            s0 = j * m + t
            s1 = s0 + gap * m
            a, c = half_sums(n16 + (s0 + j * m) * 4, m * 4, q + s0 * 32, w)
            b, e = half_sums(n16 + (s1 + (j + gap) * m) * 4, m * 4, q + s1 * 32, x)
            u = fma(to_f32(c), s[1], to_f32(a) * s[0]) * d
            v = fma(to_f32(e), r[1], to_f32(b) * r[0]) * d
            store(f0 + t * 64, fma(u, broadcast_f32(da + s0 * 4), load_f32x16(f0 + t * 64)))
            store(f1 + t * 64, fma(v, broadcast_f32(da + s1 * 4), load_f32x16(f1 + t * 64)))

    return add_pair
