"""Integer dot products and table lookups of bytes: operations that name an instruction, with each level's own form.

`dot4(acc, w, y)` adds to lane i of acc (int32) the sum over k < 4 of w[4 i + k] * y[4 i + k].
- `dot4_u7`: w in 0..127, y in -127..127.
- `dot4_i8`: w in -128..127 made ready by `ready_i8`, y in -127..127, and acc started by `start_i8`. x86's vpdpbusd
  wants one side unsigned, so there `ready_i8` adds 128 and `start_i8` takes back 128 times the sum of the activations.
`dot2_i16` adds w[2 i] * y[2 i] + w[2 i + 1] * y[2 i + 1], with w in -128..127 and y in -32767..32767, both int16; it
writes LLVM code and is used where that is made.
Nothing saturates, so the sums are exact and every level gives the same integers.

`lookup16(table, i)` gives byte i[k], 0..15, of the table in lane k; its 16 bytes stand four times in the register.
"""

from typing import Any

from llvmlite import ir
from numba.core import types

from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.vectors import INT, broadcast, call, function, i8x64, i32x16, lanes_of, pointer

LEVEL = current_level()
UNSIGNED_BY_SIGNED = LEVEL.has("avx512vnni") or LEVEL.has("avxvnni")


def _pieces(b: ir.IRBuilder, v: ir.Value, n: int) -> list[ir.Value]:
    """v cut into n vectors of equal size."""
    size = v.type.count // n
    return [lanes_of(b, v, None, range(i * size, (i + 1) * size)) for i in range(n)]


def _joined(b: ir.IRBuilder, pieces: list[ir.Value]) -> ir.Value:
    while len(pieces) > 1:
        size = 2 * pieces[0].type.count
        pieces = [lanes_of(b, lo, hi, range(size)) for lo, hi in zip(pieces[::2], pieces[1::2], strict=True)]
    return pieces[0]


def _by_piece(b: ir.IRBuilder, n: int, name: str, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    """An instruction on 1/n of the width, applied n times. LLVM 22 types its byte operands as bytes."""
    triples = zip(_pieces(b, acc, n), _pieces(b, w, n), _pieces(b, y, n), strict=True)
    return _joined(b, [call(b, name, a.type, [a, u, v]) for a, u, v in triples])


def _maddubs(b: ir.IRBuilder, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    """AVX2: pairs of unsigned * signed bytes to int16 (2 * 128 * 127 does not saturate), pairs of those to int32."""
    i16x16, i32x8 = ir.VectorType(INT[16], 16), ir.VectorType(INT[32], 8)
    ones = ir.Constant(i16x16, [1] * 16)
    sums = []
    for a, u, v in zip(_pieces(b, acc, 2), _pieces(b, w, 2), _pieces(b, y, 2), strict=True):
        pairs = call(b, "llvm.x86.avx2.pmadd.ub.sw", i16x16, [u, v])
        sums.append(b.add(a, call(b, "llvm.x86.avx2.pmadd.wd", i32x8, [pairs, ones])))
    return _joined(b, sums)


def _maddubs_signed(b: ir.IRBuilder, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    """AVX2: |w| as the unsigned side, y with the sign of w."""
    zero = ir.Constant(w.type, [0] * w.type.count)
    negative = b.icmp_signed("<", w, zero)
    return _maddubs(b, acc, b.select(negative, b.sub(zero, w), w), b.select(negative, b.sub(zero, y), y))


def _widened(b: ir.IRBuilder, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    """Any processor: byte k of every lane widened, multiplied, added."""
    i32 = ir.VectorType(INT[32], acc.type.count)
    for k in range(4):
        picks = range(k, w.type.count, 4)
        acc = b.add(acc, b.mul(b.sext(lanes_of(b, w, None, picks), i32), b.sext(lanes_of(b, y, None, picks), i32)))
    return acc


def dot2_i16(b: ir.IRBuilder, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    """acc (i32x16) plus the products of pairs of w and y (i16x32)."""
    if LEVEL.has("avx512vnni"):
        return _by_piece(b, 1, "llvm.x86.avx512.vpdpwssd.512", acc, w, y)
    if LEVEL.has("avxvnni"):
        return _by_piece(b, 2, "llvm.x86.avx512.vpdpwssd.256", acc, w, y)
    if LEVEL.has("avx2"):
        i32x8 = ir.VectorType(INT[32], 8)
        pairs = [call(b, "llvm.x86.avx2.pmadd.wd", i32x8, list(p))
                 for p in zip(_pieces(b, w, 2), _pieces(b, y, 2), strict=True)]
        return b.add(acc, _joined(b, pairs))
    i32 = acc.type
    for k in range(2):
        picks = range(k, w.type.count, 2)
        acc = b.add(acc, b.mul(b.sext(lanes_of(b, w, None, picks), i32), b.sext(lanes_of(b, y, None, picks), i32)))
    return acc


def _dot4_u7(b: ir.IRBuilder, s: Any, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    if LEVEL.has("avx512vnni"):
        return _by_piece(b, 1, "llvm.x86.avx512.vpdpbusd.512", acc, w, y)
    if LEVEL.has("avxvnni"):
        return _by_piece(b, 2, "llvm.x86.avx512.vpdpbusd.256", acc, w, y)
    if LEVEL.has("avx2"):
        return _maddubs(b, acc, w, y)
    if LEVEL.has("dotprod"):
        return _by_piece(b, 4, "llvm.aarch64.neon.sdot.v4i32.v16i8", acc, w, y)
    return _widened(b, acc, w, y)


def _dot4_i8(b: ir.IRBuilder, s: Any, acc: ir.Value, w: ir.Value, y: ir.Value) -> ir.Value:
    if LEVEL.has("avx2") and not UNSIGNED_BY_SIGNED:
        return _maddubs_signed(b, acc, w, y)
    return _dot4_u7(b, s, acc, w, y)


def _ready_i8(b: ir.IRBuilder, s: Any, w: ir.Value) -> ir.Value:
    return b.xor(w, ir.Constant(w.type, [-128] * w.type.count)) if UNSIGNED_BY_SIGNED else w


def _start_i8(b: ir.IRBuilder, s: Any, address: ir.Value) -> ir.Value:
    if not UNSIGNED_BY_SIGNED:
        return ir.Constant(i32x16.llvm, [0] * 16)
    return broadcast(b, b.load(pointer(b, address, INT[32]), align=1), 16)


def _select_by_bits(b: ir.IRBuilder, table: ir.Value, i: ir.Value) -> ir.Value:
    """Any processor: of the 16 entries, in every lane, each bit of the index keeps one half of those left."""
    n = i.type.count
    entries = [lanes_of(b, table, None, [k] * n) for k in range(16)]
    for bit in (1, 2, 4, 8):
        is_set = b.icmp_unsigned("!=", b.and_(i, ir.Constant(i.type, [bit] * n)), ir.Constant(i.type, [0] * n))
        entries = [b.select(is_set, high, low) for low, high in zip(entries[::2], entries[1::2], strict=True)]
    return entries[0]


def _lookup16(b: ir.IRBuilder, s: Any, table: ir.Value, i: ir.Value) -> ir.Value:
    for feature, n, name in (("avx512bw", 1, "llvm.x86.avx512.pshuf.b.512"), ("avx2", 2, "llvm.x86.avx2.pshuf.b"),
                             ("neon", 4, "llvm.aarch64.neon.tbl1.v16i8")):
        if LEVEL.has(feature):
            pairs = zip(_pieces(b, table, n), _pieces(b, i, n), strict=True)
            return _joined(b, [call(b, name, t.type, [t, k]) for t, k in pairs])
    return _select_by_bits(b, table, i)


def _dot_types(acc: Any, w: Any, y: Any) -> tuple[Any, ...]:
    return i32x16, i32x16, i8x64, i8x64


dot4_u7 = function(3, _dot_types, _dot4_u7)
dot4_i8 = function(3, _dot_types, _dot4_i8)
ready_i8 = function(1, lambda w: (w, w), _ready_i8)
unready_i8 = ready_i8         # its own inverse
start_i8 = function(1, lambda a: (i32x16, types.int64), _start_i8)      # address of -128 * sum of the activations
lookup16 = function(2, lambda table, i: (i8x64, i8x64, i8x64), _lookup16)
