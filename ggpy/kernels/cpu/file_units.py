"""What the direct products of formats share: eight blocks of a row, as they lie in the file, times activations.

A *file unit* is eight blocks of a row, 256 weights. A format's `decode(p)` gives its weights, four registers, and its
scales. A register has 8 bytes for each block: byte 8 b + i of register k is weight 8 k + i of block b. Activations are
arranged likewise (see ARRANGED), so the sums of a block come together in two neighbouring lanes without more ado.
`add(acc, y, w, scales)` adds the product with the activations at y to acc, whose lane j is the partial sum acc[j] of
the canonical order (see matmul.py). One decoded unit serves several rows of activations.
"""

from ggpy.kernels.cpu.arguments import ARRANGED
from ggpy.kernels.cpu.dot import dot4_i8, dot4_u7
from ggpy.kernels.cpu.kernel import device
from ggpy.kernels.cpu.lanes8 import (
    as_i64x8,
    f16_to_f32,
    f32x8,
    gather_i16x8,
    gather_i32x8,
    i64x8,
    load_every_second,
    load_f32x8,
    load_i32x8,
    load_i64x8,
    offsets_i8,
    rotate_each,
    trunc_i16x8,
    trunc_i32x8,
)
from ggpy.kernels.cpu.simd import (
    as_i8x64,
    as_i32x16,
    concat,
    constant,
    fma,
    load_i8x64,
    shuffle1,
    shuffle2,
    splat_i8x64,
    splat_i32x16,
    sra,
    to_f32,
)
from ggpy.kernels.cpu.vectors import i32x16

low_eights, high_eights = shuffle2(i64x8, [0, 8, 2, 10, 4, 12, 6, 14]), shuffle2(i64x8, [1, 9, 3, 11, 5, 13, 7, 15])
lower_f32x8, upper_f32x8 = shuffle1(f32x8, range(8)), shuffle1(f32x8, range(8, 16))


def for_each_block(*numbers):
    """A constant with numbers[b % len(numbers)] in both 32-bit lanes of block b."""
    return constant(i32x16, [n % 32 for _ in range(8 // len(numbers)) for n in numbers for _ in range(2)])


def eights(*picks):
    """Four shuffles of two registers of eight times 8 bytes: number k gives the 8 bytes picks[b] + k to block b."""
    return [shuffle2(i64x8, [pick + k for pick in picks]) for k in range(4)]


pairs_0, pairs_1, pairs_2, pairs_3 = eights(0, 0, 4, 4, 8, 8, 12, 12)
low_then_high = for_each_block(0, 4)


@device
def low_nibbles(v):
    return as_i8x64(v) & splat_i8x64(15)


@device
def high_nibbles(v):
    return as_i8x64(as_i32x16(v) >> 4) & splat_i8x64(15)


@device
def split_nibbles(v, shifts):
    """Of every 8 bytes the low halves, or the high ones where `shifts` is 4."""
    return as_i8x64(as_i32x16(v) >> shifts) & splat_i8x64(15)


@device
def nibbles_of_pairs(p):
    """Blocks whose nibbles share 32 bytes, block 2 i in the low halves and 2 i + 1 in the high ones."""
    a, b, shifts = load_i64x8(p), load_i64x8(p + 64), low_then_high()
    return (split_nibbles(pairs_0(a, b), shifts), split_nibbles(pairs_1(a, b), shifts),
            split_nibbles(pairs_2(a, b), shifts), split_nibbles(pairs_3(a, b), shifts))


@device
def nibbles_of_blocks(p, stride):
    """Blocks of 16 bytes, `stride` apart: the low halves are the first 16 weights, the high halves the last."""
    a, b = load_every_second(p, stride), load_every_second(p + stride, stride)
    low, high = low_eights(a, b), high_eights(a, b)
    return low_nibbles(low), low_nibbles(high), high_nibbles(low), high_nibbles(high)


@device
def moved_bits(h, places, mask):
    """The bytes of h moved to the left by places[b] bits, as far as they are in `mask`."""
    return rotate_each(as_i8x64(h), places) & splat_i8x64(mask)


@device
def scales(p, stride):
    """For formats with d of each block, `stride` apart."""
    return f16_to_f32(gather_i16x8(p, stride))


@device
def scales_and_minimums(p, stride):
    """For formats with d and m of each block, `stride` apart: d and -m, as w = d * q - (-m)."""
    both = gather_i32x8(p, stride)
    return f16_to_f32(trunc_i16x8(both)), f16_to_f32(trunc_i16x8(both >> 16)) * (-1.0)


@device
def sums_of_twos(v):
    """Of every two neighbouring int32 lanes."""
    return trunc_i32x8(as_i64x8(v + as_i32x16(as_i64x8(v) >> 32)))


def make_half_sums(dot4):
    """half_sums(w, y): integer sums over the first and the last 16 weights of the blocks, two lanes for each block."""

    @device
    def half_sums(w, y):
        a = dot4(splat_i32x16(0), w[0], load_i8x64(y))
        b = dot4(splat_i32x16(0), w[2], load_i8x64(y + 128))
        return dot4(a, w[1], load_i8x64(y + 64)), dot4(b, w[3], load_i8x64(y + 192))

    return half_sums


half_sums_u7, half_sums_i8 = make_half_sums(dot4_u7), make_half_sums(dot4_i8)


@device
def block_n16(y):
    """-128 times the sums of the activations of the blocks."""
    return load_i32x8(y + ARRANGED.n16) + load_i32x8(y + ARRANGED.n16_last)


@device
def add_with_minimum(acc, y, w, scales):
    """For w = d q - m, q in 0..127; scales are (d, m)."""
    a, b = half_sums_u7(w, y)
    acc = fma(to_f32(sums_of_twos(a + b)) * scales[0], load_f32x8(y + ARRANGED.da), acc)
    return fma(scales[1], load_f32x8(y + ARRANGED.ys), acc)


@device
def add_i8(acc, y, w, d):
    """For w = d q, q in -128..127 made ready by `ready_i8`."""
    a, b = half_sums_i8(w, y)
    return fma(to_f32(sums_of_twos(a + b) + offsets_i8(block_n16(y))) * d, load_f32x8(y + ARRANGED.da), acc)


def make_add_biased(shift):
    """For w = d (q - (128 >> shift)), q in 0..127."""

    @device
    def add(acc, y, w, d):
        a, b = half_sums_u7(w, y)
        s = sums_of_twos(a + b) + sra(block_n16(y), shift)
        return fma(to_f32(s) * d, load_f32x8(y + ARRANGED.da), acc)

    return add


def make_add_biased_16(shift):
    """For w = d s (q - (128 >> shift)), q in 0..127, with an integer s for each 16 weights.

    scales are d and the float32 x 16 with s of the first halves of the blocks, then those of the last. Products with s
    and their sum are integers that float32 holds exactly.
    """

    @device
    def add(acc, y, w, scales):
        a, b = half_sums_u7(w, y)
        s = concat(sums_of_twos(a) + sra(load_i32x8(y + ARRANGED.n16), shift),
                   sums_of_twos(b) + sra(load_i32x8(y + ARRANGED.n16_last), shift))
        s = to_f32(s) * scales[1]
        return fma((lower_f32x8(s) + upper_f32x8(s)) * scales[0], load_f32x8(y + ARRANGED.da), acc)

    return add
