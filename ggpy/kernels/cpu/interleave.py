"""From rows as they lie in a file to packed groups of GROUP_ROWS rows: the frame around a format's `pack_block`.

All packed formats are made of *lines* of 64 bytes that hold one 32-bit word of each row: byte 4 r + i of a line is byte
i of row r's word. A format says which words of its file block become which lines. Everything moves as whole words, 16
rows at a time; rows that a group lacks, and blocks that a row lacks, are zeros.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from ggpy.kernels.cpu.arguments import GROUP_ROWS
from ggpy.kernels.cpu.arguments import PACK as ARGS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import (
    keep_first,
    load_f16,
    load_i32,
    load_i32x4,
    load_i64,
    load_u16,
    shuffle2,
    splat_i32x16,
    store,
    store_f32,
    store_i32,
    store_u16,
    zeros_i32x4,
)
from ggpy.kernels.cpu.vectors import i32x4

LINE = 64

low_words, high_words = shuffle2(i32x4, [0, 4, 1, 5]), shuffle2(i32x4, [2, 6, 3, 7])


def file_block(layout: np.dtype[np.void]) -> Any:
    """Byte offsets of the fields of a file block, and its `size`, as constants for kernels."""
    assert layout.fields is not None
    assert layout.names is not None
    offsets = [layout.fields[name][1] for name in layout.names]
    names = [*layout.names, "size"]
    kind: Any = namedtuple("FileBlock", names)              # type: ignore[misc]
    return kind._make([*offsets, layout.itemsize])


@device
def interleave(source, stride, n, packed):
    """16 bytes of each of n rows, `stride` apart, to four lines."""
    for r in range(0, GROUP_ROWS, 4):
        a = load_i32x4(source + min(r, n - 1) * stride)
        b = load_i32x4(source + min(r + 1, n - 1) * stride)
        c = load_i32x4(source + min(r + 2, n - 1) * stride)
        d = load_i32x4(source + min(r + 3, n - 1) * stride)
        ac_low, ac_high = low_words(a, c), high_words(a, c)
        bd_low, bd_high = low_words(b, d), high_words(b, d)
        line = packed + 4 * r
        store(line, keep_first(low_words(ac_low, bd_low), n - r, zeros_i32x4()))
        store(line + LINE, keep_first(high_words(ac_low, bd_low), n - r, zeros_i32x4()))
        store(line + 2 * LINE, keep_first(low_words(ac_high, bd_high), n - r, zeros_i32x4()))
        store(line + 3 * LINE, keep_first(high_words(ac_high, bd_high), n - r, zeros_i32x4()))


@device
def interleave_bytes(source, n_bytes, stride, n, packed):
    """`n_bytes`, a multiple of 16, of each of n rows, to n_bytes / 4 lines."""
    for i in range(0, n_bytes, 16):
        interleave(source + i, stride, n, packed + i * GROUP_ROWS)


@device
def interleave_word(source, stride, n, packed):
    """4 bytes of each of n rows to one line."""
    for r in range(GROUP_ROWS):
        store_i32(packed + 4 * r, load_i32(source + r * stride) if r < n else np.int32(0))


@device
def interleave_half(source, stride, n, packed):
    """2 bytes of each of n rows to 32 bytes."""
    for r in range(GROUP_ROWS):
        store_u16(packed + 2 * r, load_u16(source + r * stride) if r < n else np.uint16(0))


@device
def widen_half(source, stride, n, packed):
    """One float16 of each of n rows to a line of float32."""
    for r in range(GROUP_ROWS):
        store_f32(packed + 4 * r, load_f16(source + r * stride) if r < n else np.float32(0.0))


@device
def clear_lines(p, n_bytes):
    for i in range(0, n_bytes, LINE):
        store(p + i, splat_i32x16(0))


def make_pack_group(block_bytes, unit_bytes, blocks_per_unit, pack_block):
    """pack_group(source, stride, n, packed) of a format: one group, from n rows that lie `stride` bytes apart.

    Units of `unit_bytes` hold `blocks_per_unit` file blocks of `block_bytes`. `pack_block(source, stride, n, unit, i)`
    writes the part of a unit that belongs to its file block i.
    """

    @device
    def pack_group(source, stride, n, packed):
        n_blocks = stride // block_bytes
        if n_blocks % blocks_per_unit != 0:
            clear_lines(packed + n_blocks // blocks_per_unit * unit_bytes, unit_bytes)
        for b in range(n_blocks):
            pack_block(source + b * block_bytes, stride, n, packed + b // blocks_per_unit * unit_bytes,
                       b % blocks_per_unit)

    return pack_group


def make_pack(pack_group):
    """The kernel "pack" of a format."""

    @kernel
    def pack(args, step, item, n_items):
        """Rows of a file, n_out of row_bytes each, to groups of GROUP_ROWS rows, which items share."""
        n_out = load_i64(args + ARGS.n_out)
        stride = load_i64(args + ARGS.row_bytes)
        n_groups = (n_out + GROUP_ROWS - 1) // GROUP_ROWS
        group_bytes = load_i64(args + ARGS.group_bytes)
        for g in range(n_groups * item // n_items, n_groups * (item + 1) // n_items):
            source = load_i64(args + ARGS.source) + g * GROUP_ROWS * stride
            packed = load_i64(args + ARGS.packed) + g * group_bytes
            n = n_out - g * GROUP_ROWS
            if n >= GROUP_ROWS:
                pack_group(source, stride, GROUP_ROWS, packed)
            else:
                pack_group(source, stride, n, packed)

    return pack
