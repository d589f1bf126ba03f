"""exp, exp2, tanh and sigmoid of float32 vectors, each lane within 3e-7 of the true value (relative).

exp(x) = 2^n e^r with n the integer nearest to x / ln 2 and |r| <= ln 2 / 2; e^r = 1 + r + r^2 q(r), q a minimax
polynomial of degree 4. The power of two is applied in two halves, so results become subnormal, 0 or infinity where
they should. A NaN stays one. Rounding to an integer is done by adding and taking away 1.5 * 2^23, which needs no
instruction beyond SSE2.
"""

from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.simd import (
    absolute,
    as_f32x16,
    as_i32x16,
    fma,
    maximum,
    minimum,
    select_less,
    splat_f32x16,
    splat_i32x16,
    sra,
)

ROUNDER = 12582912.0                # 1.5 * 2^23: its sum with |x| < 2^22 has the nearest integer in the low bits
ROUNDER_BITS = 0x4B400000
LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HIGH = 0.693359375              # 10 bits, so n * LN2_HIGH is exact
LN2_LOW = LN2 - LN2_HIGH


@device
def _e_to(r):
    """e^r for |r| <= ln 2 / 2."""
    q = fma(r, splat_f32x16(0.001381459878757596), splat_f32x16(0.008368716575205326))
    q = fma(r, q, splat_f32x16(0.04166838899254799))
    q = fma(r, q, splat_f32x16(0.1666652113199234))
    q = fma(r, q, splat_f32x16(0.4999999403953552))
    return fma(r * r, q, r) + 1.0


@device
def _power_of_two(n):
    """2^n for n in -126..127."""
    return as_f32x16((n + 127) << 23)


@device
def _scale(p, rounded):
    """p * 2^n, with n in the low bits of `rounded` as ROUNDER leaves it; |n| <= 252."""
    n = as_i32x16(rounded) - splat_i32x16(ROUNDER_BITS)
    half = sra(n, 1)
    return p * _power_of_two(half) * _power_of_two(n - half)


@device
def exp(x):
    """e^x for any x: 0 from about -104 down, infinity from 88.8 up."""
    x = minimum(splat_f32x16(100.0), maximum(splat_f32x16(-120.0), x))
    rounded = fma(x, splat_f32x16(LOG2_E), splat_f32x16(ROUNDER))
    n = rounded - ROUNDER
    r = fma(n, splat_f32x16(-LN2_LOW), fma(n, splat_f32x16(-LN2_HIGH), x))
    return _scale(_e_to(r), rounded)


@device
def exp2_nonpositive(x):
    """2^x for x <= 0, minus infinity included; exactly 0 below -126.5."""
    x = maximum(splat_f32x16(-127.0), x)
    rounded = x + ROUNDER
    r = (x - (rounded - ROUNDER)) * LN2
    return _e_to(r) * as_f32x16((as_i32x16(rounded) - splat_i32x16(ROUNDER_BITS - 127)) << 23)


@device
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return splat_f32x16(1.0) / (exp(splat_f32x16(0.0) - x) + 1.0)


@device
def tanh(x):
    """An odd polynomial below 0.55, else 1 - 2 / (e^2|x| + 1) with the sign of x."""
    z = x * x
    p = fma(z, splat_f32x16(-0.006274237763136625), splat_f32x16(0.021071678027510643))
    p = fma(z, p, splat_f32x16(-0.05385230854153633))
    p = fma(z, p, splat_f32x16(0.13332585990428925))
    p = fma(z, p, splat_f32x16(-0.33333316445350647))
    near = fma(x * z, p, x)
    size = absolute(x)
    far = splat_f32x16(1.0) - splat_f32x16(2.0) / (exp(size + size) + 1.0)
    far = as_f32x16(as_i32x16(far) | (as_i32x16(x) & splat_i32x16(-0x80000000)))
    return select_less(size, splat_f32x16(0.55), near, far)
