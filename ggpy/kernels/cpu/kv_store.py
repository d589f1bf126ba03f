"""Keys and values of a step into the KV pages, rounded to the pool's type (nearest, ties to even).

A page holds PAGE_TOKENS = 32 tokens of all kv heads. The token at position p of a sequence stands in page
page_table[p / 32] at slot p % 32:

    K  at  k_pool + ((page * n_head_kv + head) * head_dim_k + d) * 32 * item + slot * item       [head][dim][token]
    V  at  v_pool + (((page * n_head_kv + head) * 32 + slot) * head_dim_v + d) * item            [head][token][dim]

Threads share the (kv head, tile) pairs of the step; tiles of one head follow each other, so that lines of K are seldom
written by two threads.
"""

from ggpy.kernels.cpu.arguments import KV_STORE as ARGS
from ggpy.kernels.cpu.kernel import device, kernel
from ggpy.kernels.cpu.simd import (
    first_lane_u16,
    load_f32,
    load_f32x16,
    load_i32,
    load_i64,
    splat_f32x16,
    store,
    store_lanes,
    store_u16,
    to_f16_bits,
)
from ggpy.kernels.cpu.simd import store_f32 as store_float
from ggpy.kernels.cpu.step import PAGE_TOKENS, STEP, TILE, TILE_BYTES


@device
def half(x):
    return first_lane_u16(to_f16_bits(splat_f32x16(x)))


@device
def same(x):
    return x


def make_store(item_bytes, convert, convert_one, store_one):
    """The kernel for pools whose values are made by `convert` (16 floats) and `convert_one`."""

    @device
    def store_k(k, dim, pool):
        stride = PAGE_TOKENS * item_bytes
        for d in range(0, dim - 15, 16):
            store_lanes(pool + d * stride, stride, convert(load_f32x16(k + 4 * d)))
        for d in range(dim // 16 * 16, dim):
            store_one(pool + d * stride, convert_one(load_f32(k + 4 * d)))

    @device
    def store_v(v, dim, pool):
        for d in range(0, dim - 15, 16):
            store(pool + d * item_bytes, convert(load_f32x16(v + 4 * d)))
        for d in range(dim // 16 * 16, dim):
            store_one(pool + d * item_bytes, convert_one(load_f32(v + 4 * d)))

    @kernel
    def kv_store(args, step, ith, nth):
        n_head_kv = load_i64(args + ARGS.n_head_kv)
        dim_k, dim_v = load_i64(args + ARGS.head_dim_k), load_i64(args + ARGS.head_dim_v)
        k_pool, v_pool = load_i64(args + ARGS.k_pool), load_i64(args + ARGS.v_pool)
        n_tiles = load_i64(step + STEP.n_tiles)
        n_units = n_head_kv * n_tiles
        for unit in range(n_units * ith // nth, n_units * (ith + 1) // nth):
            head = unit // n_tiles
            tile = load_i64(step + STEP.tiles) + (unit % n_tiles) * TILE_BYTES
            first_row, table = load_i64(tile + TILE.first_row), load_i64(tile + TILE.page_table)
            for i in range(load_i64(tile + TILE.n_rows)):
                position = load_i64(tile + TILE.first_position) + i
                slot = position % PAGE_TOKENS
                page = load_i32(table + position // PAGE_TOKENS * 4) * n_head_kv + head
                row = (first_row + i) * n_head_kv + head
                store_k(load_i64(args + ARGS.k) + row * dim_k * 4, dim_k,
                        k_pool + (page * dim_k * PAGE_TOKENS + slot) * item_bytes)
                store_v(load_i64(args + ARGS.v) + row * dim_v * 4, dim_v,
                        v_pool + (page * PAGE_TOKENS + slot) * dim_v * item_bytes)

    return kv_store


store_f16 = make_store(2, to_f16_bits, half, store_u16)
store_f32 = make_store(4, same, same, store_float)
