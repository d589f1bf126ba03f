"""Rows of weights by number, as float32: what tokens, or positions, go into a model as.

`embed.q8_0` and so on give the bits of `dequantize`, times a factor: w = d * scale * q - dm * minimum is exact but for
one rounding, in whatever order, and the product with the factor is rounded once more. Items share the rows.
"""

import numpy as np

from ggpy.formats.k_quants import Q4_K_BLOCK, Q5_K_BLOCK, Q6_K_BLOCK
from ggpy.formats.q4 import Q4_0_BLOCK
from ggpy.formats.q5 import Q5_0_BLOCK
from ggpy.formats.q8 import Q8_0_BLOCK
from ggpy.kernels.cpu.bf16 import load_bf16x16
from ggpy.kernels.cpu.embed_kernels import EMBED as ARGS
from ggpy.kernels.cpu.embed_kernels import LANES
from ggpy.kernels.cpu.interleave import file_block
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.lanes8 import load_i8x16, sext_i32
from ggpy.kernels.cpu.simd import (
    lane_index,
    load_f16,
    load_f16x16,
    load_f32,
    load_f32x16,
    load_i32,
    load_i64,
    load_u16,
    splat_i32x16,
    store,
    to_f32,
    zext_i32,
)
from ggpy.kernels.cpu.step import STEP

Q4_0, Q5_0, Q8_0 = file_block(Q4_0_BLOCK), file_block(Q5_0_BLOCK), file_block(Q8_0_BLOCK)
Q4_K, Q5_K, Q6_K = file_block(Q4_K_BLOCK), file_block(Q5_K_BLOCK), file_block(Q6_K_BLOCK)


@device
def bytes_at(p):
    return zext_i32(load_i8x16(p))


@device
def byte_at(p):
    return np.int64(load_u16(p)) & 255      # what follows is part of the block too


@device
def bits(v, shift, mask):
    return (v >> shift) & splat_i32x16(mask)


def make_embed(n_weights, n_bytes, write):
    """The kernel of a format whose blocks of `n_weights` in `n_bytes` `write(p, factor, out)` makes float32."""

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

    @device
    def write(p, factor, out):
        store(out, load(p) * factor)

    return make_embed(LANES, LANES * n_bytes, write)


@device
def write_q4_0(p, factor, out):
    d, v = load_f16(p + Q4_0.d), bytes_at(p + Q4_0.qs)
    store(out, to_f32(bits(v, 0, 15) - splat_i32x16(8)) * d * factor)
    store(out + 64, to_f32(bits(v, 4, 15) - splat_i32x16(8)) * d * factor)


@device
def write_q5_0(p, factor, out):
    d, v, fifth = load_f16(p + Q5_0.d), bytes_at(p + Q5_0.qs), splat_i32x16(load_i32(p + Q5_0.qh))
    low, high = (fifth >> lane_index()) & splat_i32x16(1), ((fifth >> 16) >> lane_index()) & splat_i32x16(1)
    store(out, to_f32((bits(v, 0, 15) | low << 4) - splat_i32x16(16)) * d * factor)
    store(out + 64, to_f32((bits(v, 4, 15) | high << 4) - splat_i32x16(16)) * d * factor)


@device
def write_q8_0(p, factor, out):
    d = load_f16(p + Q8_0.d)
    store(out, to_f32(sext_i32(load_i8x16(p + Q8_0.qs))) * d * factor)
    store(out + 64, to_f32(sext_i32(load_i8x16(p + Q8_0.qs + 16))) * d * factor)


@device
def k_scales(p, j):
    """Scale and minimum of block j of 8 as float32, from the 12 bytes at p: see formats/k_quants.py for their bits."""
    if j < 4:
        return np.float32(byte_at(p + j) & 63), np.float32(byte_at(p + 4 + j) & 63)
    both, low, high = byte_at(p + 4 + j), byte_at(p + j - 4), byte_at(p + j)
    return np.float32(both & 15 | low >> 6 << 4), np.float32(both >> 4 | high >> 6 << 4)


@device
def write_q4_k(p, factor, out):
    d, dm = load_f16(p + Q4_K.d), load_f16(p + Q4_K.dmin)
    for j in range(8):
        scale, minimum = k_scales(p + Q4_K.scales, j)
        for k in range(2):
            q = bits(bytes_at(p + Q4_K.qs + 32 * (j // 2) + 16 * k), 4 * (j % 2), 15)
            store(out + 128 * j + 64 * k, (to_f32(q) * (d * scale) + -(dm * minimum)) * factor)


@device
def write_q5_k(p, factor, out):
    d, dm = load_f16(p + Q5_K.d), load_f16(p + Q5_K.dmin)
    for j in range(8):
        scale, minimum = k_scales(p + Q5_K.scales, j)
        for k in range(2):
            q = bits(bytes_at(p + Q5_K.qs + 32 * (j // 2) + 16 * k), 4 * (j % 2), 15)
            q = q | bits(bytes_at(p + Q5_K.qh + 16 * k), j, 1) << 4
            store(out + 128 * j + 64 * k, (to_f32(q) * (d * scale) + -(dm * minimum)) * factor)


@device
def write_q6_k(p, factor, out):
    d = load_f16(p + Q6_K.d)
    for r in range(16):
        i, quarter, k = r // 8, r % 8 // 2, r % 2
        q = bits(bytes_at(p + Q6_K.ql + 64 * i + 32 * (quarter % 2) + 16 * k), 4 * (quarter // 2), 15)
        q = q | bits(bytes_at(p + Q6_K.qh + 32 * i + 16 * k), 2 * quarter, 3) << 4
        scale = np.float32((byte_at(p + Q6_K.scales + r) ^ 128) - 128)
        store(out + 64 * r, to_f32(q - splat_i32x16(32)) * (d * scale) * factor)


f32, f16, bf16 = make_float_embed(load_f32x16, 4), make_float_embed(load_f16x16, 2), make_float_embed(load_bf16x16, 2)
q4_0, q5_0 = make_embed(32, Q4_0.size, write_q4_0), make_embed(32, Q5_0.size, write_q5_0)
q8_0 = make_embed(32, Q8_0.size, write_q8_0)
q4_k, q5_k = make_embed(256, Q4_K.size, write_q4_k), make_embed(256, Q5_K.size, write_q5_k)
q6_k = make_embed(256, Q6_K.size, write_q6_k)
