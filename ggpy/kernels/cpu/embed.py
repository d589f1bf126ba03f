"""Rows of weights by number, as float32: what tokens, or positions, go into a model as.

`q8_0.embed` and so on give the bits of `dequantize`, times a factor: w = d * scale * q - dm * minimum is exact but for
one rounding, in whatever order, and the product with the factor is rounded once more. Items share the rows. How a
format's block becomes float32, `write`, stands in the format's own file.
"""

import numpy as np

from ggpy.kernels.cpu.arguments import EMBED as ARGS
from ggpy.kernels.cpu.arguments import EMBED_LANES
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.lanes8 import load_i8x16
from ggpy.kernels.cpu.simd import load_f32, load_i32, load_i64, splat_i32x16, store, zext_i32
from ggpy.kernels.cpu.step import STEP


@device
def bytes_at(p):
    """16 bytes as int32."""
    return zext_i32(load_i8x16(p))


@device
def bits_of_lanes(v, shift, mask):
    """(v >> shift) & mask in every lane."""
    return (v >> shift) & splat_i32x16(mask)


def make_embed(n_weights, n_bytes, write):
    """The kernel of a format whose blocks of `n_weights` in `n_bytes` `write(p, factor, out)` makes float32.

    It reads whatever row it is told to: who fills the step makes sure that there is one of that number.
    """

    @kernel
    def embed(args, step, item, n_items):
        n_rows, width, index = load_i64(step + STEP.n_tokens), load_i64(args + ARGS.width), load_i64(args + ARGS.index)
        factor = load_f32(args + ARGS.scale)
        for t in range(n_rows * item // n_items, n_rows * (item + 1) // n_items):
            row = np.int64(0)
            if index != 0:
                row = np.int64(load_i32(load_i64(step + index) + 4 * t))
            p = load_i64(args + ARGS.weight) + row * load_i64(args + ARGS.row_bytes)
            out = load_i64(args + ARGS.out) + 4 * width * t
            for i in range(0, width, n_weights):
                write(p + i // n_weights * n_bytes, factor, out + 4 * i)

    return embed


def make_float_embed(load, n_bytes):
    """The kernel of numbers of `n_bytes` that `load` makes float32."""

    @device
    def write(p, factor, out):
        store(out, load(p) * factor)

    return make_embed(EMBED_LANES, EMBED_LANES * n_bytes, write)
