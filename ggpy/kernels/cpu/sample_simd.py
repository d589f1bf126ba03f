"""What sampling needs of vectors beyond `simd.py`: comparisons as bits, sums in float64, an exponential."""

from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.kernels.cpu.vectors import INT, broadcast, f32x16, function, lanes_of, pointer
from ggpy.kernels.cpu.vectors import call as call_llvm

F64 = ir.DoubleType()
LOG2_E, LN2, LN2_HIGH = 1.4426950408889634, 0.6931471805599453, 0.693359375    # LN2_HIGH times a small integer is exact
E_TO_R = (0.001381459878757596, 0.008368716575205326, 0.04166838899254799, 0.1666652113199234, 0.4999999403953552)

load_f64 = function(1, lambda a: (types.float64, types.int64),
                    lambda b, s, a: b.load(pointer(b, a, F64), align=1))
store_f64 = function(2, lambda a, v: (types.void, types.int64, types.float64),
                     lambda b, s, a, v: b.store(v, pointer(b, a, F64), align=1) and None)




def _call(b: ir.IRBuilder, s: Any, candidates: ir.Value, method: ir.Value, args: ir.Value, how: ir.Value) -> None:
    signature = ir.FunctionType(ir.VoidType(), [INT[64]] * 4)
    address = b.load(pointer(b, b.add(candidates, method), INT[64]), align=1)
    b.call(b.inttoptr(address, signature.as_pointer()), [args, candidates, how, INT[64](0)])


# calls the kernel whose address is the field `method` of the candidates as kernel(args, candidates, how, 0)
call = function(4, lambda *a: (types.void, *[types.int64] * 4), _call)


def _bits(predicate: str, ordered: bool = True) -> Any:
    """A comparison of two vectors as an int64, a bit for each lane."""
    def emit(b: ir.IRBuilder, s: Any, a: ir.Value, c: ir.Value) -> ir.Value:
        mask = b.fcmp_ordered(predicate, a, c) if ordered else b.fcmp_unordered(predicate, a, c)
        return b.zext(b.bitcast(mask, INT[16]), INT[64])

    return function(2, lambda a, c: (types.int64, a, a), emit)


bits_greater, bits_equal, bits_at_least = map(_bits, (">", "==", ">="))
bits_not_at_most = _bits(">", ordered=False)            # greater, or a NaN
count_bits = function(1, lambda m: (types.int64, types.int64),
                      lambda b, s, m: call_llvm(b, "llvm.ctpop.i64", INT[64], [m]))
lowest_bit = function(1, lambda m: (types.int64, types.int64),           # its number; m is not 0
                      lambda b, s, m: b.cttz(m, INT[1](1)))

# a in the lanes whose bits are set in the uint16 m, else c
keep_bits = function(3, lambda a, m, c: (a, a, types.uint16, a), lambda b, s, a, m, c: b.select(
    b.bitcast(m, ir.VectorType(INT[1], 16)), a, c))


def _fold(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    """The sum of the lanes, halves folded onto each other: the same bits everywhere."""
    n = v.type.count
    while n > 1:
        n //= 2
        v = b.fadd(lanes_of(b, v, None, range(n)), lanes_of(b, v, None, range(n, 2 * n)))
    return b.extract_element(v, INT[32](0))


def _wide(b: ir.IRBuilder, v: ir.Value) -> ir.Value:
    return b.fpext(v, ir.VectorType(F64, v.type.count))


def _sum_products(b: ir.IRBuilder, s: Any, x: ir.Value, y: ir.Value) -> ir.Value:
    return _fold(b, b.fmul(_wide(b, x), _wide(b, y)))


sum_f64 = function(1, lambda x: (types.float64, x), lambda b, s, x: _fold(b, _wide(b, x)))
sum_products = function(2, lambda x, y: (types.float64, x, x), _sum_products)     # of x * y, in float64


def _exp_nonpositive(b: ir.IRBuilder, s: Any, x: ir.Value) -> ir.Value:
    """e^x = 2^n e^r as in `exp.py`, written out as one operation: this compiles in a fraction of the time."""
    vector = f32x16.llvm

    def const(value: float) -> ir.Constant:
        return ir.Constant(vector, [value] * vector.count)

    def fma(a: ir.Value, c: ir.Value, d: ir.Value) -> ir.Value:
        return call_llvm(b, "llvm.fma.v16f32", vector, [a, c, d])

    x = b.select(b.fcmp_unordered(">", x, const(-87.0)), x, const(-87.0))       # a NaN stays one
    n = call_llvm(b, "llvm.nearbyint.v16f32", vector, [b.fmul(x, const(LOG2_E))])
    r = fma(n, const(LN2_HIGH - LN2), fma(n, const(-LN2_HIGH), x))
    q = const(E_TO_R[0])
    for c in E_TO_R[1:]:
        q = fma(r, q, const(c))
    e_to_r = b.fadd(fma(b.fmul(r, r), q, r), const(1.0))
    integer = ir.VectorType(INT[32], vector.count)
    power = b.shl(b.add(b.fptosi(n, integer), broadcast(b, INT[32](127), vector.count)),
                  broadcast(b, INT[32](23), vector.count))
    return b.fmul(e_to_r, b.bitcast(power, vector))


# within 3e-7 (relative) for -87 <= x <= 0; 0 below
exp_nonpositive = function(1, lambda x: (x, x), lambda b, s, x: b.select(
    b.fcmp_ordered("<", x, ir.Constant(x.type, [-87.0] * 16)), ir.Constant(x.type, [0.0] * 16),
    _exp_nonpositive(b, s, x)))
