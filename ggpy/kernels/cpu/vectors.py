"""Vector types for Numba, their operators, and how functions of kernels are written in LLVM.

Types are named as element x lanes: `i8x64`, `i32x16`, `f32x16`, ... `+ - * & | ^ << >>` work between equal types and
with a scalar on the right (`>>` is logical; `simd.sra` shifts in the sign). Everything is generic LLVM and runs on any
processor, narrower registers included. This file, `simd.py`, `lanes8.py`, `dot.py`, `tiles.py`, `atomic.py`,
`accumulators.py` and `sample_simd.py` alone spell LLVM.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

INT = {bits: ir.IntType(bits) for bits in (1, 8, 16, 32, 64)}
ELEMENT = {"i8": INT[8], "i16": INT[16], "i32": INT[32], "i64": INT[64], "f16": ir.HalfType(), "f32": ir.FloatType()}


class Vec(types.Type):
    """Numba type of `lanes` elements of type `element`."""

    def __init__(self, element: str, lanes: int) -> None:
        self.element, self.lanes = element, lanes
        super().__init__(name=f"{element}x{lanes}")

    @property
    def llvm(self) -> ir.VectorType:
        return ir.VectorType(ELEMENT[self.element], self.lanes)

    @property
    def is_float(self) -> bool:
        return self.element[0] == "f"


@register_model(Vec)
class _VecModel(models.PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Vec) -> None:
        super().__init__(dmm, fe_type, fe_type.llvm)


i8x32, i8x64 = Vec("i8", 32), Vec("i8", 64)
i16x16, i16x32 = Vec("i16", 16), Vec("i16", 32)
i32x4, i32x16 = Vec("i32", 4), Vec("i32", 16)
f32x16 = Vec("f32", 16)


def pointer(b: ir.IRBuilder, address: ir.Value, to: ir.Type) -> ir.Value:
    return b.inttoptr(address, to.as_pointer())


def call(b: ir.IRBuilder, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
    """Calls the LLVM intrinsic or C function `name`."""
    fnty = ir.FunctionType(result, [a.type for a in args])
    return b.call(cgutils.get_or_insert_function(b.module, fnty, name), args)


def lanes_of(b: ir.IRBuilder, a: ir.Value, c: ir.Value | None, picks: Sequence[int]) -> ir.Value:
    """The lanes `picks` of a, or of a followed by c."""
    other = ir.Constant(a.type, ir.Undefined) if c is None else c
    return b.shuffle_vector(a, other, ir.Constant(ir.VectorType(INT[32], len(picks)), list(picks)))


def broadcast(b: ir.IRBuilder, x: ir.Value, lanes: int) -> ir.Value:
    vector = ir.VectorType(x.type, lanes)
    if isinstance(x, ir.Constant):
        return ir.Constant(vector, [x.constant] * lanes)
    one = b.insert_element(ir.Constant(vector, ir.Undefined), x, INT[32](0))
    return lanes_of(b, one, None, [0] * lanes)


def function(n_args: int, typer: Callable[..., tuple[Any, ...]], emit: Callable[..., ir.Value | None]) -> Any:
    """A function for kernels: `typer(*types)` gives (result, *argument types), `emit(b, sig, *values)` the code."""

    def make(args: tuple[Any, ...]) -> Any:
        result, *wanted = typer(*args)

        def generate(context: Any, b: ir.IRBuilder, sig: Any, values: Any) -> ir.Value:
            value = emit(b, sig, *values)
            return context.get_dummy_value() if value is None else value

        return result(*wanted), generate

    by_count: list[Callable[..., Any]] = [                  # Numba reads the number of arguments off the function
        lambda typingctx: make(()),
        lambda typingctx, a: make((a,)),
        lambda typingctx, a, c: make((a, c)),
        lambda typingctx, a, c, d: make((a, c, d)),
        lambda typingctx, a, c, d, e: make((a, c, d, e)),
        lambda typingctx, a, c, d, e, f: make((a, c, d, e, f)),
    ]
    return intrinsic(by_count[n_args])


_OPERATORS = {
    operator.add: ("add", "fadd"), operator.sub: ("sub", "fsub"), operator.mul: ("mul", "fmul"),
    operator.truediv: (None, "fdiv"), operator.and_: ("and_", None), operator.or_: ("or_", None),
    operator.xor: ("xor", None), operator.lshift: ("shl", None), operator.rshift: ("lshr", None),
}


def _register_operator(op: Any, int_name: str | None, float_name: str | None) -> None:
    class Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            if len(args) != 2 or not isinstance(args[0], Vec):
                return None
            a, c = args
            if (float_name if a.is_float else int_name) is None:
                return None
            if a == c:
                return signature(a, a, a)
            if isinstance(c, types.Integer | types.IntegerLiteral) and not a.is_float:
                return signature(a, a, types.int64)
            if isinstance(c, types.Float) and a.is_float:
                return signature(a, a, types.float32)
            return None

    def emit(b: ir.IRBuilder, sig: Any, a: ir.Value, c: ir.Value) -> ir.Value:
        return getattr(b, str(float_name if sig.return_type.is_float else int_name))(a, c)

    def vector_vector(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        return emit(b, sig, *args)

    def vector_scalar(context: Any, b: ir.IRBuilder, sig: Any, args: Any) -> ir.Value:
        vector, scalar = sig.return_type, args[1]
        if not vector.is_float and scalar.type != ELEMENT[vector.element]:
            scalar = b.trunc(scalar, ELEMENT[vector.element])
        return emit(b, sig, args[0], broadcast(b, scalar, vector.lanes))

    names = [op]
    in_place = getattr(operator, "i" + op.__name__.rstrip("_"), None)
    if in_place is not None:
        names.append(in_place)
    for name in names:
        infer_global(name)(type("Typing", (Typing,), {}))
        lower_builtin(name, Vec, Vec)(vector_vector)
        lower_builtin(name, Vec, types.Integer)(vector_scalar)
        lower_builtin(name, Vec, types.Float)(vector_scalar)


for _op, (_int_name, _float_name) in _OPERATORS.items():
    _register_operator(_op, _int_name, _float_name)
