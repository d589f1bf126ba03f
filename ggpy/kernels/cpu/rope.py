"""Rotary position embedding: pairs of a head's dimensions turned by angles that are given as cos and sin.

    first = a * cos - b * sin,   second = b * cos + a * sin

"rope.interleaved" pairs dimensions 2 i and 2 i + 1, "rope.neox" i and n_rot / 2 + i, for i < n_rot / 2; dimensions
from n_rot on are copied. x and out are (n_rows, n_head, head_dim) float32 and may be the same memory; cos and sin are
(n_rows, n_rot / 2). Each result is one rounded product and one fused multiply-add, the same in vectors and in tails.
"""

import numpy as np

from ggpy.kernels.cpu.arguments import ROPE as ARGS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import fma, load_f32, load_f32x16, load_i64, shuffle2, store, store_f32
from ggpy.kernels.cpu.vectors import f32x16

evens, odds = shuffle2(f32x16, range(0, 32, 2)), shuffle2(f32x16, range(1, 32, 2))
zip_low, zip_high = (shuffle2(f32x16, [i + 16 * side for i in half for side in (0, 1)])
                     for half in (range(8), range(8, 16)))


@device
def turn(a, b, cos, sin):
    """(a, b) turned; vectors or scalars."""
    return fma(a, cos, (b * sin) * np.float32(-1.0)), fma(b, cos, a * sin)


@device
def turn_interleaved(x, n_pairs, cos, sin, out):
    for i in range(0, n_pairs - 15, 16):
        lo, hi = load_f32x16(x + 8 * i), load_f32x16(x + 8 * i + 64)
        a, b = turn(evens(lo, hi), odds(lo, hi), load_f32x16(cos + 4 * i), load_f32x16(sin + 4 * i))
        store(out + 8 * i, zip_low(a, b))
        store(out + 8 * i + 64, zip_high(a, b))
    for i in range(n_pairs // 16 * 16, n_pairs):
        at = out + 8 * i
        a, b = turn(load_f32(x + 8 * i), load_f32(x + 8 * i + 4), load_f32(cos + 4 * i), load_f32(sin + 4 * i))
        store_f32(at, a)
        store_f32(at + 4, b)


@device
def turn_neox(x, n_pairs, cos, sin, out):
    half = 4 * n_pairs
    for i in range(0, n_pairs - 15, 16):
        at = 4 * i
        a, b = turn(load_f32x16(x + at), load_f32x16(x + half + at), load_f32x16(cos + at), load_f32x16(sin + at))
        store(out + at, a)
        store(out + half + at, b)
    for i in range(n_pairs // 16 * 16, n_pairs):
        at = 4 * i
        a, b = turn(load_f32(x + at), load_f32(x + half + at), load_f32(cos + at), load_f32(sin + at))
        store_f32(out + at, a)
        store_f32(out + half + at, b)


def make_rope(turn_head):
    """The kernel that turns every head of every row by `turn_head`; items share the heads of all rows."""

    @kernel
    def rope(args, step, item, n_items):
        n_head = load_i64(args + ARGS.n_head)
        head_dim = load_i64(args + ARGS.head_dim)
        n_rot = load_i64(args + ARGS.n_rot)
        n_pairs = n_rot // 2
        n_units = load_i64(step + load_i64(args + ARGS.n_rows)) * n_head
        for unit in range(n_units * item // n_items, n_units * (item + 1) // n_items):
            x = load_i64(args + ARGS.x) + unit * head_dim * 4
            out = load_i64(args + ARGS.out) + unit * head_dim * 4
            angles = (unit // n_head) * n_pairs * 4
            turn_head(x, n_pairs, load_i64(args + ARGS.cos) + angles, load_i64(args + ARGS.sin) + angles, out)
            if out != x:
                for d in range(2 * n_pairs, head_dim):
                    store_f32(out + 4 * d, load_f32(x + 4 * d))

    return rope


interleaved = make_rope(turn_interleaved)
neox = make_rope(turn_neox)
