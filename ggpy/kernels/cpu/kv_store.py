"""Keys and values of a step into the KV pages, rounded to the pool's type: see kv_pages.py for the layout.

f16 rounds to nearest, ties to even. q8_0 is what formats/q8.py says: d = RN(max |x| / 127) of 32 values, stored as f16,
and RN(x * RN(1 / d)) with halves away from zero; where there is a `k_offset`, it is taken off the keys before.

Threads share the (kv head, tile) pairs of the step; tiles of one head follow each other, so that lines of K are seldom
written by two threads.
"""

from typing import Any, NamedTuple

import numpy as np

from ggpy.formats.kv import PAGE_TOKENS, QUANT_BLOCK
from ggpy.kernels.cpu.arguments import KV_STORE as ARGS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.kv_pages import DIM_BYTES
from ggpy.kernels.cpu.simd import (
    absolute,
    as_i16x16,
    concat,
    first_lane_u16,
    load_f32,
    load_f32x16,
    load_i32,
    load_i64,
    max_lanes,
    maximum,
    splat_f32x16,
    store,
    store_lanes,
    store_u16,
    to_f16_bits,
    to_f32,
    to_i32,
    trunc_i8,
)
from ggpy.kernels.cpu.simd import store_f32 as store_float
from ggpy.kernels.cpu.step import STEP, TILE, TILE_BYTES


class Stores(NamedTuple):
    """How one token of one kv head is stored, `page` the head's part."""

    dim_bytes: int
    store_k: Any        # store_k(k, offset, dim, page, slot)
    store_v: Any        # store_v(v, dim, page, slot)


@device
def half(x):
    return first_lane_u16(to_f16_bits(splat_f32x16(x)))


@device
def same(x):
    return x


def float_stores(item_bytes, convert, convert_one, store_one):
    """For pages whose values are made by `convert` (16 floats) and `convert_one`."""

    @device
    def store_k(k, offset, dim, page, slot):
        stride = PAGE_TOKENS * item_bytes
        to = page + slot * item_bytes
        for d in range(0, dim - 15, 16):
            store_lanes(to + d * stride, stride, convert(load_f32x16(k + 4 * d)))
        for d in range(dim // 16 * 16, dim):
            store_one(to + d * stride, convert_one(load_f32(k + 4 * d)))

    @device
    def store_v(v, dim, page, slot):
        to = page + slot * dim * item_bytes
        for d in range(0, dim - 15, 16):
            store(to + d * item_bytes, convert(load_f32x16(v + 4 * d)))
        for d in range(dim // 16 * 16, dim):
            store_one(to + d * item_bytes, convert_one(load_f32(v + 4 * d)))

    return Stores(PAGE_TOKENS * item_bytes, store_k, store_v)


@device
def round_half_away(x):
    """The nearest integers, below 2^30."""
    whole = to_i32(x)
    return whole + to_i32((x - to_f32(whole)) * np.float32(2.0))


@device
def quantized(lo, hi):
    """(d, q): 32 floats as a scale and int8."""
    d = max_lanes(maximum(absolute(lo), absolute(hi))) / np.float32(127.0)
    inverse = np.float32(1.0) / d if d != np.float32(0.0) else np.float32(0.0)
    return d, trunc_i8(concat(round_half_away(lo * inverse), round_half_away(hi * inverse)))


@device
def store_k_q8_0(k, offset, dim, page, slot):
    for block in range(dim // QUANT_BLOCK):
        at = block * QUANT_BLOCK * 4
        lo, hi = load_f32x16(k + at), load_f32x16(k + at + 64)
        if offset != 0:
            lo, hi = lo - load_f32x16(offset + at), hi - load_f32x16(offset + at + 64)
        d, q = quantized(lo, hi)
        store_lanes(page + block * QUANT_BLOCK * PAGE_TOKENS + slot * 2, PAGE_TOKENS * 2, as_i16x16(q))
        store_u16(page + dim * PAGE_TOKENS + (block * PAGE_TOKENS + slot) * 2, half(d))


@device
def store_v_q8_0(v, dim, page, slot):
    for block in range(dim // QUANT_BLOCK):
        at = v + block * QUANT_BLOCK * 4
        d, q = quantized(load_f32x16(at), load_f32x16(at + 64))
        store(page + (block * PAGE_TOKENS + slot) * QUANT_BLOCK, q)
        store_u16(page + dim * PAGE_TOKENS + (block * PAGE_TOKENS + slot) * 2, half(d))


def make_store(keys, values):
    """The kernel for pools of two types."""
    store_k, store_v = keys.store_k, values.store_v
    k_dim_bytes, v_dim_bytes = keys.dim_bytes, values.dim_bytes

    @kernel
    def kv_store(args, step, item, n_items):
        n_head_kv = load_i64(args + ARGS.n_head_kv)
        dim_k, dim_v = load_i64(args + ARGS.head_dim_k), load_i64(args + ARGS.head_dim_v)
        k_pool, v_pool = load_i64(args + ARGS.k_pool), load_i64(args + ARGS.v_pool)
        offsets, n_tiles = load_i64(args + ARGS.k_offset), load_i64(step + STEP.n_tiles)
        table_row = load_i64(args + ARGS.table_row)
        n_units = n_head_kv * n_tiles
        for unit in range(n_units * item // n_items, n_units * (item + 1) // n_items):
            head = unit // n_tiles
            offset = offsets + head * dim_k * 4 if offsets != 0 else 0
            tile = load_i64(step + STEP.tiles) + (unit % n_tiles) * TILE_BYTES
            first_row, table = load_i64(tile + TILE.first_row), load_i64(tile + TILE.page_table) + table_row
            for i in range(load_i64(tile + TILE.n_rows)):
                position = load_i64(tile + TILE.first_position) + i
                slot = position % PAGE_TOKENS
                page = load_i32(table + position // PAGE_TOKENS * 4) * n_head_kv + head
                row = (first_row + i) * n_head_kv + head
                store_k(load_i64(args + ARGS.k) + row * dim_k * 4, offset, dim_k, k_pool + page * dim_k * k_dim_bytes,
                        slot)
                store_v(load_i64(args + ARGS.v) + row * dim_v * 4, dim_v, v_pool + page * dim_v * v_dim_bytes, slot)

    return kv_store


STORES = {"f16": float_stores(2, to_f16_bits, half, store_u16), "f32": float_stores(4, same, same, store_float),
          "q8_0": Stores(DIM_BYTES["q8_0"], store_k_q8_0, store_v_q8_0)}
# "store_f16_q8_0" stores keys as f16 and values as q8_0
globals().update({f"store_{k}_{v}": make_store(STORES[k], STORES[v]) for k in STORES for v in STORES})
