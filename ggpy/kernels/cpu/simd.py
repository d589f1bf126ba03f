"""Explicit SIMD for kernels: loads and stores, lanes, conversions and arithmetic of the vectors of `vectors.py`.

Addresses are plain int64. Everything here is generic LLVM; `dot.py` holds the operations that name an instruction.
"""

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from ggpy.kernels.cpu.vectors import (
    ELEMENT,
    INT,
    Vec,
    broadcast,
    call,
    f32x16,
    function,
    i8x32,
    i8x64,
    i16x16,
    i16x32,
    i32x4,
    i32x16,
    lanes_of,
    pointer,
)


def _loader(vec: Vec) -> Any:
    return function(1, lambda a: (vec, types.int64), lambda b, s, a: b.load(pointer(b, a, vec.llvm), align=1))


def _scalar_loader(numba_type: Any, llvm_type: ir.Type) -> Any:
    return function(1, lambda a: (numba_type, types.int64),
                    lambda b, s, a: b.load(pointer(b, a, llvm_type), align=1))


def _scalar_storer(numba_type: Any, llvm_type: ir.Type) -> Any:
    def emit(b: ir.IRBuilder, s: Any, a: ir.Value, v: ir.Value) -> None:
        b.store(v, pointer(b, a, llvm_type), align=1)

    return function(2, lambda a, v: (types.void, types.int64, numba_type), emit)


load_i8x64 = _loader(i8x64)
load_i16x16, load_i16x32 = map(_loader, (i16x16, i16x32))
load_i32x4, load_i32x16 = map(_loader, (i32x4, i32x16))
load_f32x16 = _loader(f32x16)

load_u16, load_i32 = _scalar_loader(types.uint16, INT[16]), _scalar_loader(types.int32, INT[32])
load_i64, load_f32 = _scalar_loader(types.int64, INT[64]), _scalar_loader(types.float32, ELEMENT["f32"])
store_u16 = _scalar_storer(types.uint16, INT[16])
store_i32, store_i64 = _scalar_storer(types.int32, INT[32]), _scalar_storer(types.int64, INT[64])
store_f32 = _scalar_storer(types.float32, ELEMENT["f32"])


def _store(b: ir.IRBuilder, s: Any, a: ir.Value, v: ir.Value) -> None:
    b.store(v, pointer(b, a, v.type), align=1)


store = function(2, lambda a, v: (types.void, types.int64, v), _store)       # a whole vector


def load_vectors(n: int) -> Any:
    """A function that loads n f32x16 that follow each other, as a tuple."""
    def emit(b: ir.IRBuilder, s: Any, a: ir.Value) -> ir.Value:
        at = [pointer(b, b.add(a, INT[64](64 * i)), f32x16.llvm) for i in range(n)]
        return cgutils.pack_array(b, [b.load(p, align=1) for p in at])

    return function(1, lambda a: (types.UniTuple(f32x16, n), types.int64), emit)


def store_vectors(n: int) -> Any:
    def emit(b: ir.IRBuilder, s: Any, a: ir.Value, v: ir.Value) -> None:
        for i in range(n):
            b.store(b.extract_value(v, i), pointer(b, b.add(a, INT[64](64 * i)), f32x16.llvm), align=1)

    return function(2, lambda a, v: (types.void, types.int64, types.UniTuple(f32x16, n)), emit)


def _first_lanes(b: ir.IRBuilder, lanes: int, n: ir.Value) -> ir.Value:
    """True in the lanes below n."""
    numbers = ir.Constant(ir.VectorType(INT[32], lanes), list(range(lanes)))
    return b.icmp_signed("<", numbers, broadcast(b, b.trunc(n, INT[32]), lanes))


def _load_first(b: ir.IRBuilder, s: Any, a: ir.Value, n: ir.Value) -> ir.Value:
    vec = f32x16.llvm
    zeros = ir.Constant(vec, [0.0] * vec.count)
    return call(b, f"llvm.masked.load.v{vec.count}f32.p0", vec,
                [pointer(b, a, vec), INT[32](1), _first_lanes(b, vec.count, n), zeros])


def _store_first(b: ir.IRBuilder, s: Any, a: ir.Value, n: ir.Value, v: ir.Value) -> None:
    call(b, f"llvm.masked.store.v{v.type.count}f32.p0", ir.VoidType(),
         [v, pointer(b, a, v.type), INT[32](1), _first_lanes(b, v.type.count, n)])


# the first n floats at an address, other lanes are 0 or are not written; no byte beyond them is touched
load_first = function(2, lambda a, n: (f32x16, types.int64, types.int64), _load_first)
store_first = function(3, lambda a, n, v: (types.void, types.int64, types.int64, f32x16), _store_first)


def _store_lanes(b: ir.IRBuilder, s: Any, a: ir.Value, stride: ir.Value, v: ir.Value) -> None:
    for i in range(v.type.count):
        at = b.add(a, b.mul(stride, INT[64](i)))
        b.store(b.extract_element(v, INT[32](i)), pointer(b, at, v.type.element), align=1)


# lane i at address + i * stride bytes
store_lanes = function(3, lambda a, stride, v: (types.void, types.int64, types.int64, v), _store_lanes)


def _prefetcher(locality: int) -> Any:
    def emit(b: ir.IRBuilder, s: Any, a: ir.Value) -> None:
        args = [pointer(b, a, INT[8]), INT[32](0), INT[32](locality), INT[32](1)]
        call(b, "llvm.prefetch.p0", ir.VoidType(), args)

    return function(1, lambda a: (types.void, types.int64), emit)


prefetch_l1, prefetch_l2 = _prefetcher(3), _prefetcher(2)


def _caster(vec: Vec) -> Any:
    return function(1, lambda a: (vec, a), lambda b, s, a: b.bitcast(a, vec.llvm))


as_i8x64, as_i16x16, as_i32x16, as_f32x16 = map(_caster, (i8x64, i16x16, i32x16, f32x16))


def _splatter(vec: Vec, scalar: Any) -> Any:
    return function(1, lambda a: (vec, scalar), lambda b, s, a: broadcast(b, a, vec.lanes))


splat_i8x32, splat_i8x64 = _splatter(i8x32, types.int8), _splatter(i8x64, types.int8)
splat_i32x16, splat_f32x16 = _splatter(i32x16, types.int32), _splatter(f32x16, types.float32)


def _broadcaster(vec: Vec, scalar: ir.Type) -> Any:
    """One scalar of memory in every lane: an operand that x86 broadcasts while it loads."""
    n = vec.llvm.count * vec.llvm.element.width // 32 if not vec.is_float else vec.lanes

    def emit(b: ir.IRBuilder, s: Any, a: ir.Value) -> ir.Value:
        return b.bitcast(broadcast(b, b.load(pointer(b, a, scalar), align=1), n), vec.llvm)

    return function(1, lambda a: (vec, types.int64), emit)


broadcast_4xi8 = _broadcaster(i8x64, INT[32])            # 4 bytes, 16 times
broadcast_i32 = _broadcaster(i32x16, INT[32])
broadcast_f32 = _broadcaster(f32x16, ELEMENT["f32"])


def constant(vec: Vec, values: Sequence[int] | Sequence[float]) -> Any:
    """A vector literal, as a function without arguments."""
    return function(0, lambda: (vec,), lambda b, s: ir.Constant(vec.llvm, list(values)))


lane_index = constant(i32x16, range(16))
zeros_i32x4 = constant(i32x4, [0] * 4)


def shuffle1(result: Vec, picks: Sequence[int]) -> Any:
    return function(1, lambda a: (result, a), lambda b, s, a: lanes_of(b, a, None, picks))


def shuffle2(result: Vec, picks: Sequence[int]) -> Any:
    return function(2, lambda a, c: (result, a, c), lambda b, s, a, c: lanes_of(b, a, c, picks))


def _first_lane(scalar: Any) -> Any:
    return function(1, lambda a: (scalar, a), lambda b, s, a: b.extract_element(a, INT[32](0)))


first_lane, first_lane_u16 = _first_lane(types.float32), _first_lane(types.uint16)
concat = function(2, lambda a, c: (Vec(a.element, 2 * a.lanes), a, c),
                  lambda b, s, a, c: lanes_of(b, a, c, range(2 * s.args[0].lanes)))


def _converter(element: str, method: str) -> Any:
    return function(1, lambda a: (Vec(element, a.lanes), a),
                    lambda b, s, a: getattr(b, method)(a, s.return_type.llvm))


zext_i32, trunc_i8, trunc_i16 = _converter("i32", "zext"), _converter("i8", "trunc"), _converter("i16", "trunc")
to_f32, to_i32 = _converter("f32", "sitofp"), _converter("i32", "fptosi")


def _half_bits_to_float(b: ir.IRBuilder, bits: ir.Value) -> ir.Value:
    """float16 bits in i16 lanes (or one i16) to float32 by integer operations and one exact product."""
    vector = isinstance(bits.type, ir.VectorType)

    def like(element: ir.Type) -> ir.Type:
        return ir.VectorType(element, bits.type.count) if vector else element

    def const(element: ir.Type, value: float) -> ir.Constant:
        return ir.Constant(like(element), [value] * bits.type.count if vector else value)

    i32, f32 = like(INT[32]), like(ELEMENT["f32"])
    wide = b.zext(bits, i32)
    sign = b.shl(b.and_(wide, const(INT[32], 0x8000)), const(INT[32], 16))
    magnitude = b.and_(wide, const(INT[32], 0x7FFF))
    # the exponent is rebiased by 2**112, which also normalises subnormals; infinity and NaN get the top exponent
    scaled = b.fmul(b.bitcast(b.shl(magnitude, const(INT[32], 13)), f32), const(ELEMENT["f32"], 2.0**112))
    special = b.icmp_unsigned(">=", magnitude, const(INT[32], 0x7C00))
    top = b.or_(b.bitcast(scaled, i32), const(INT[32], 0x7F800000))
    return b.bitcast(b.or_(b.select(special, top, b.bitcast(scaled, i32)), sign), f32)


def half_to_float(b: ir.IRBuilder, a: ir.Value, result: ir.Type) -> ir.Value:
    """Hardware conversion where the level has one: without it LLVM would call a C library function per lane."""
    from ggpy.kernels.cpu.level import current_level

    level = current_level()
    if level.has("f16c") or level.machine == "aarch64":
        half = ir.VectorType(ir.HalfType(), a.type.count) if isinstance(a.type, ir.VectorType) else ir.HalfType()
        return b.fpext(b.bitcast(a, half), result)
    return _half_bits_to_float(b, a)


load_f16 = function(1, lambda a: (types.float32, types.int64), lambda b, s, a: half_to_float(
    b, b.load(pointer(b, a, INT[16]), align=1), ELEMENT["f32"]))
load_f16x16 = function(1, lambda a: (f32x16, types.int64), lambda b, s, a: half_to_float(
    b, b.load(pointer(b, a, ir.VectorType(INT[16], 16)), align=1), f32x16.llvm))


def _float_to_half(b: ir.IRBuilder, s: Any, a: ir.Value) -> ir.Value:
    """float32 lanes to float16 bits, round to nearest even, overflow to infinity."""
    from ggpy.kernels.cpu.level import current_level

    level, lanes = current_level(), a.type.count
    i16 = ir.VectorType(INT[16], lanes)
    if level.has("f16c") or level.machine == "aarch64":
        return b.bitcast(b.fptrunc(a, ir.VectorType(ir.HalfType(), lanes)), i16)
    return _float_to_half_bits(b, a, i16)


def _float_to_half_bits(b: ir.IRBuilder, a: ir.Value, i16: ir.Type) -> ir.Value:
    lanes = a.type.count
    i32 = ir.VectorType(INT[32], lanes)

    def const(value: int) -> ir.Constant:
        return ir.Constant(i32, [value] * lanes)

    bits = b.bitcast(a, i32)
    sign = b.lshr(b.and_(bits, const(0x80000000)), const(16))
    magnitude = b.and_(bits, const(0x7FFFFFFF))
    # subnormal halves: adding 0.5 leaves the rounded value in the low mantissa bits
    half = ir.Constant(a.type, [0.5] * lanes)
    tiny = b.sub(b.bitcast(b.fadd(b.bitcast(magnitude, a.type), half), i32), const(0x3F000000))
    odd = b.and_(b.lshr(magnitude, const(13)), const(1))
    normal = b.lshr(b.add(b.sub(magnitude, const(0x38000000)), b.add(odd, const(0xFFF))), const(13))
    value = b.select(b.icmp_unsigned("<", magnitude, const(0x38800000)), tiny, normal)
    value = b.select(b.icmp_unsigned(">=", magnitude, const(0x47800000)), const(0x7C00), value)
    value = b.select(b.icmp_unsigned(">", magnitude, const(0x7F800000)), const(0x7E00), value)
    return b.trunc(b.or_(value, sign), i16)


to_f16_bits = function(1, lambda a: (Vec("i16", a.lanes), a), _float_to_half)


sra = function(2, lambda a, c: (a, a, types.int64),
               lambda b, s, a, c: b.ashr(a, broadcast(b, b.trunc(c, a.type.element), s.return_type.lanes)))


def _rotate(b: ir.IRBuilder, s: Any, a: ir.Value, n: ir.Value) -> ir.Value:
    count = broadcast(b, b.trunc(n, INT[32]), a.type.count)
    return call(b, f"llvm.fshl.v{a.type.count}i32", a.type, [a, a, count])


rotate = function(2, lambda a, n: (a, a, types.int64), _rotate)      # i32 lanes to the left by n bits, modulo 32


def _suffix(t: Any) -> str:
    return f"v{t.lanes}f32" if isinstance(t, Vec) else "f32"


fma = function(3, lambda a, c, d: (a, a, a, a),          # a * c + d, rounded once; vectors or scalars
               lambda b, s, a, c, d: call(b, f"llvm.fma.{_suffix(s.return_type)}", a.type, [a, c, d]))


def _unary(name: str) -> Any:
    return function(1, lambda a: (a, a), lambda b, s, a: call(b, f"llvm.{name}.{_suffix(s.return_type)}", a.type, [a]))


rint, sqrt, absolute = _unary("nearbyint"), _unary("sqrt"), _unary("fabs")


def _compare_select(predicate: str) -> Any:
    return function(2, lambda a, c: (a, a, a),
                    lambda b, s, a, c: b.select(b.fcmp_ordered(predicate, a, c), a, c))


maximum, minimum = _compare_select(">"), _compare_select("<")

# d where a < c, else e
select_less = function(4, lambda a, c, d, e: (d, a, a, d, d),
                       lambda b, s, a, c, d, e: b.select(b.fcmp_ordered("<", a, c), d, e))

# a where the lane number is below n, else c
keep_first = function(3, lambda a, n, c: (a, a, types.int64, a),
                      lambda b, s, a, n, c: b.select(_first_lanes(b, s.return_type.lanes, n), a, c))


def _halving(combine: Callable[[ir.IRBuilder, ir.Value, ir.Value], ir.Value]) -> Callable[..., ir.Value]:
    """Folds the upper half of the lanes onto the lower until one is left: a fixed tree, the same bits everywhere."""
    def emit(b: ir.IRBuilder, s: Any, v: ir.Value) -> ir.Value:
        n = s.args[0].lanes
        while n > 1:
            n //= 2
            v = combine(b, lanes_of(b, v, None, range(n)), lanes_of(b, v, None, range(n, 2 * n)))
        return b.extract_element(v, INT[32](0))
    return emit


sum_lanes = function(1, lambda a: (types.float32, a), _halving(lambda b, x, y: b.fadd(x, y)))
sum_lanes_i32 = function(1, lambda a: (types.int32, a), _halving(lambda b, x, y: b.add(x, y)))
max_lanes = function(1, lambda a: (types.float32, a),
                     _halving(lambda b, x, y: b.select(b.fcmp_ordered(">", x, y), x, y)))
