"""Q4_1: w = d * q + m with q in 0..15, d and m per 32 weights.

Packed, per pair of blocks and group of 16 rows, PAIR_BYTES = 640: for each of the two blocks d (16 float16) and m
(16 float16); then for each block four lines of 64 bytes, where byte 4 r + i of line k holds, for row r, weight 4 k + i
in its low and weight 16 + 4 k + i in its high half. A row with an odd number of blocks gets one of zeros.
"""

from ggpy.kernels.cpu.dot import dot4_u7
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.matmul import make_linear
from ggpy.kernels.cpu.simd import (
    as_i8x64,
    as_i16x32,
    broadcast_4xi8,
    broadcast_f32,
    fma,
    load_f16x16,
    load_f32x16,
    load_i8x64,
    prefetch_l2,
    splat_i8x64,
    splat_i32x16,
    store,
    to_f32,
)

PAIR_BYTES = 640


@device
def low_half(v):
    return v & splat_i8x64(15)


@device
def high_half(v):
    return as_i8x64(as_i16x32(v) >> 4) & splat_i8x64(15)


@device
def block_dot(y, w0, w1, w2, w3, w4, w5, w6, w7):
    """Integer sums of one block of 16 rows with the 32 activations at y."""
    a = dot4_u7(splat_i32x16(0), w0, broadcast_4xi8(y))
    c = dot4_u7(splat_i32x16(0), w4, broadcast_4xi8(y + 16))
    a = dot4_u7(a, w1, broadcast_4xi8(y + 4))
    c = dot4_u7(c, w5, broadcast_4xi8(y + 20))
    a = dot4_u7(a, w2, broadcast_4xi8(y + 8))
    c = dot4_u7(c, w6, broadcast_4xi8(y + 24))
    a = dot4_u7(a, w3, broadcast_4xi8(y + 12))
    c = dot4_u7(c, w7, broadcast_4xi8(y + 28))
    return a + c


@device
def rows(w, n_blocks, m, q, da, ys, n16, acc):
    """Adds one group of Q4_1 rows times m activation rows to acc; minimum m counts as -(-m)."""
    for j in range(0, n_blocks, 2):
        p = w + (j // 2) * PAIR_BYTES
        for k in range(10):
            prefetch_l2(p + 4096 + 64 * k)
        d0 = load_f16x16(p)
        d1 = load_f16x16(p + 32)
        m0 = splat_m(p + 64)
        m1 = splat_m(p + 96)
        v0, v1, v2, v3 = (load_i8x64(p + 128), load_i8x64(p + 192), load_i8x64(p + 256), load_i8x64(p + 320))
        u0, u1, u2, u3 = (load_i8x64(p + 384), load_i8x64(p + 448), load_i8x64(p + 512), load_i8x64(p + 576))
        w0, w1, w2, w3 = low_half(v0), low_half(v1), low_half(v2), low_half(v3)
        w4, w5, w6, w7 = high_half(v0), high_half(v1), high_half(v2), high_half(v3)
        x0, x1, x2, x3 = low_half(u0), low_half(u1), low_half(u2), low_half(u3)
        x4, x5, x6, x7 = high_half(u0), high_half(u1), high_half(u2), high_half(u3)
        f0 = acc + (j % 8) * (64 * m)
        f1 = f0 + 64 * m
        y0 = q + j * m * 32
        for t in range(m):
            s0 = j * m + t
            s1 = s0 + m
            a = block_dot(y0 + t * 32, w0, w1, w2, w3, w4, w5, w6, w7)
            c = block_dot(y0 + (m + t) * 32, x0, x1, x2, x3, x4, x5, x6, x7)
            v = fma(to_f32(a) * d0, broadcast_f32(da + s0 * 4), load_f32x16(f0 + t * 64))
            store(f0 + t * 64, fma(m0, broadcast_f32(ys + s0 * 4), v))
            v = fma(to_f32(c) * d1, broadcast_f32(da + s1 * 4), load_f32x16(f1 + t * 64))
            store(f1 + t * 64, fma(m1, broadcast_f32(ys + s1 * 4), v))


@device
def splat_m(p):
    """The minimums as the canonical order has them: w = d * q - (-m)."""
    return load_f16x16(p) * (-1.0)


linear = make_linear(rows)
