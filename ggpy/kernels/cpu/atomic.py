"""Atomics and waiting for the thread team, as functions usable in kernels. Addresses are int64."""

import sys
from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.vectors import INT, call, function, pointer


def _add(b: ir.IRBuilder, s: Any, a: ir.Value, v: ir.Value) -> ir.Value:
    return b.atomic_rmw("add", pointer(b, a, INT[64]), v, "acq_rel")


def _load(b: ir.IRBuilder, s: Any, a: ir.Value) -> ir.Value:
    return b.load_atomic(pointer(b, a, INT[64]), "acquire", 8)


def _store(b: ir.IRBuilder, s: Any, a: ir.Value, v: ir.Value) -> None:
    b.store_atomic(v, pointer(b, a, INT[64]), "seq_cst", 8)


def _replace(b: ir.IRBuilder, s: Any, a: ir.Value, old: ir.Value, new: ir.Value) -> ir.Value:
    pair = b.cmpxchg(pointer(b, a, INT[64]), old, new, "acq_rel", "acquire")
    return b.zext(b.extract_value(pair, 1), INT[64])


def _pause(b: ir.IRBuilder, s: Any) -> None:
    """Eases a spinning core where that does something: Arm's `yield` is a no-op on most cores."""
    if current_level().machine == "x86_64":
        call(b, "llvm.x86.sse2.pause", ir.VoidType(), [])


def _yield_cpu(b: ir.IRBuilder, s: Any) -> None:
    call(b, "SwitchToThread" if sys.platform == "win32" else "sched_yield", INT[32], [])


FUTEX_CALL = {"x86_64": 202, "aarch64": 98}.get(current_level().machine) if sys.platform == "linux" else None
WAIT_PRIVATE, WAKE_PRIVATE = 128, 129


def _futex(b: ir.IRBuilder, address: ir.Value, operation: int, value: ir.Value, timeout: ir.Value) -> None:
    zero = INT[64](0)
    call(b, "syscall", INT[64], [INT[64](FUTEX_CALL), address, INT[64](operation), value, timeout, zero, zero])


def _sleep_while(b: ir.IRBuilder, s: Any, address: ir.Value, value: ir.Value) -> None:
    """Sleeps while the low 32 bits at `address` are those of `value`, or for a moment where there is no futex."""
    if FUTEX_CALL is not None:
        _futex(b, address, WAIT_PRIVATE, value, INT[64](0))
    elif sys.platform == "win32":
        call(b, "Sleep", ir.VoidType(), [INT[32](1)])
    else:
        call(b, "usleep", INT[32], [INT[32](500)])


def _wake_all(b: ir.IRBuilder, s: Any, address: ir.Value) -> None:
    if FUTEX_CALL is not None:
        _futex(b, address, WAKE_PRIVATE, INT[64](0x7FFFFFFF), INT[64](0))


def _call_kernel(b: ir.IRBuilder, s: Any, address: ir.Value, *args: ir.Value) -> None:
    signature = ir.FunctionType(ir.VoidType(), [INT[64]] * 4)
    b.call(b.inttoptr(address, signature.as_pointer()), args)


_i64 = types.int64
atomic_add = function(2, lambda a, v: (_i64, _i64, _i64), _add)             # returns the old value
atomic_load = function(1, lambda a: (_i64, _i64), _load)
atomic_store = function(2, lambda a, v: (types.void, _i64, _i64), _store)
atomic_replace = function(3, lambda a, old, new: (_i64, _i64, _i64, _i64), _replace)     # 1 if `old` was there, else 0
pause = function(0, lambda: (types.void,), _pause)
yield_cpu = function(0, lambda: (types.void,), _yield_cpu)
sleep_while = function(2, lambda a, v: (types.void, _i64, _i64), _sleep_while)
wake_all = function(1, lambda a: (types.void, _i64), _wake_all)
clock = function(0, lambda: (_i64,), lambda b, s: call(b, "llvm.readcyclecounter", INT[64], []))
call_kernel = function(5, lambda *a: (types.void, *[_i64] * 5), _call_kernel)     # address, then its four arguments
