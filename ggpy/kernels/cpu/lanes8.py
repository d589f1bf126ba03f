"""SIMD with a lane of 64 bits, or two of 32, for each of eight blocks of a row: what `file_units.py` is written in."""

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.kernels.cpu.dot import UNSIGNED_BY_SIGNED
from ggpy.kernels.cpu.simd import half_to_float
from ggpy.kernels.cpu.vectors import (
    INT,
    Vec,
    broadcast,
    call,
    function,
    i8x32,
    i8x64,
    i32x4,
    i32x16,
    lanes_of,
    pointer,
)

i8x8, i8x16 = Vec("i8", 8), Vec("i8", 16)
i16x8, i32x8, i64x8, f32x8 = Vec("i16", 8), Vec("i32", 8), Vec("i64", 8), Vec("f32", 8)


def _loader(vec: Vec) -> Any:
    return function(1, lambda a: (vec, types.int64), lambda b, s, a: b.load(pointer(b, a, vec.llvm), align=1))


def _caster(vec: Vec) -> Any:
    return function(1, lambda a: (vec, a), lambda b, s, a: b.bitcast(a, vec.llvm))


def _truncated(vec: Vec, wide: Vec) -> Any:
    return function(1, lambda a: (vec, wide), lambda b, s, a: b.trunc(a, vec.llvm))


load_i8x16, load_i8x32, load_i32x8, load_i64x8, load_f32x8 = map(_loader, (i8x16, i8x32, i32x8, i64x8, f32x8))
as_i8x8, as_i8x32, as_i64x8 = map(_caster, (i8x8, i8x32, i64x8))
trunc_i16x8, trunc_i32x8 = _truncated(i16x8, i32x8), _truncated(i32x8, i64x8)
sext_i32 = function(1, lambda a: (Vec("i32", a.lanes), a), lambda b, s, a: b.sext(a, s.return_type.llvm))
splat_f32x8 = function(1, lambda a: (f32x8, types.float32), lambda b, s, a: broadcast(b, a, 8))
broadcast_8xi8 = function(1, lambda a: (i8x64, types.int64), lambda b, s, a: b.bitcast(
    broadcast(b, b.load(pointer(b, a, INT[64]), align=1), 8), i8x64.llvm))                  # 8 bytes, 8 times
f16_to_f32 = function(1, lambda a: (f32x8, i16x8), lambda b, s, a: half_to_float(b, a, f32x8.llvm))


def _gatherer(vec: Vec) -> Any:
    """One element of `vec` from each of the addresses a, a + stride, ..."""

    def emit(b: ir.IRBuilder, s: Any, a: ir.Value, stride: ir.Value) -> ir.Value:
        v = ir.Constant(vec.llvm, ir.Undefined)
        for i in range(vec.lanes):
            place = pointer(b, b.add(a, b.mul(stride, INT[64](i))), vec.llvm.element)
            v = b.insert_element(v, b.load(place, align=1), INT[32](i))
        return v

    return function(2, lambda a, stride: (vec, types.int64, types.int64), emit)


gather_i16x8, gather_i32x8 = map(_gatherer, (i16x8, i32x8))


def _load_every_second(b: ir.IRBuilder, s: Any, a: ir.Value, stride: ir.Value) -> ir.Value:
    one, two, three, four = (
        b.load(pointer(b, b.add(a, b.mul(stride, INT[64](i))), i32x4.llvm), align=1) for i in (0, 2, 4, 6))
    low, high = lanes_of(b, one, two, range(8)), lanes_of(b, three, four, range(8))
    return b.bitcast(lanes_of(b, low, high, range(16)), i64x8.llvm)


# 16 bytes of each of the blocks 0, 2, 4 and 6, which lie `stride` apart
load_every_second = function(2, lambda a, stride: (i64x8, types.int64, types.int64), _load_every_second)


def _rotate_each(b: ir.IRBuilder, s: Any, a: ir.Value, n: ir.Value) -> ir.Value:
    return b.bitcast(call(b, "llvm.fshl.v16i32", n.type, [b.bitcast(a, n.type), b.bitcast(a, n.type), n]), a.type)


rotate_each = function(2, lambda a, n: (i8x64, i8x64, i32x16), _rotate_each)    # every word i to the left by n[i] bits


def _bits_as_bytes(picks: Sequence[int]) -> Any:
    """Byte 8 b + i is `value` where bit i of byte picks[b] is set, else 0."""

    def emit(b: ir.IRBuilder, s: Any, bits: ir.Value, value: ir.Value) -> ir.Value:
        each = ir.Constant(i8x64.llvm, [1 << i if i < 7 else -128 for i in range(8)] * 8)
        zeros = ir.Constant(i8x64.llvm, [0] * 64)
        found = b.and_(lanes_of(b, bits, None, [pick for pick in picks for _ in range(8)]), each)
        return b.select(b.icmp_unsigned("!=", found, zeros), broadcast(b, value, 64), zeros)

    return function(2, lambda bits, value: (i8x64, i8x32, types.int8), emit)


# of eight words of 32 bits, byte k of each
bits_of_byte = [_bits_as_bytes(range(k, 32, 4)) for k in range(4)]
# what sums of products of `ready_i8` weights lack, from -128 times the sums of their activations: see dot.py
offsets_i8 = function(1, lambda a: (a, a),
                      lambda b, s, a: a if UNSIGNED_BY_SIGNED else ir.Constant(a.type, [0] * a.type.count))
