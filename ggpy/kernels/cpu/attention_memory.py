"""How much work memory attention needs, for those who allocate it and those who use it. Imports no Numba.

Attention works on *query rows*: the rows of a tile times the heads that share one kv head. Query row i * group + g is
head g of the kv head's group at the tile's row i. The result of one split for n query rows, a *partial*, is

    o  float32 (n, padded(dim))  sum of exp2(score - m) * V
    m  float32 (n,)              the largest score
    l  float32 (n,)              sum of exp2(score - m)
"""

from typing import Protocol

from ggpy.formats.kv import PAGE_TOKENS
from ggpy.kernels.cpu.step import SPLIT_TOKENS, TILE_ROWS

LINE = 64
FACTOR_BYTES = 4 * PAGE_TOKENS      # of one query row's factors for the values of a page
FACTORS_BYTES = 8 * FACTOR_BYTES    # of as many query rows as are taken through the registers at once
ITEMS_PER_THREAD = 4        # "attend" and "combine" are shared out in this many items for each of several threads


class AttentionShape(Protocol):
    """What sizes depend on; the graph's attention operation has it."""

    @property
    def n_head(self) -> int: ...
    @property
    def n_head_kv(self) -> int: ...
    @property
    def head_dim_k(self) -> int: ...
    @property
    def head_dim_v(self) -> int: ...


def padded(dim: int) -> int:
    """Floats of a row of sums: whole pairs of vectors, whatever the number of value dimensions."""
    return (dim + 31) // 32 * 32


def partial_bytes(n_query: int, n_floats: int) -> int:
    """Bytes of a partial with rows of `n_floats` = padded(dim)."""
    return n_query * n_floats * 4 + (8 * n_query + LINE - 1) // LINE * LINE


def query_bytes(n_query: int, dim_k: int) -> int:
    """Bytes of the scaled queries of a tile."""
    return (n_query * dim_k * 4 + LINE - 1) // LINE * LINE


def attention_items(n_threads: int) -> int:
    """Items of "attend" and "combine". They share splits while there are fewer (tile, kv head) pairs than items."""
    return ITEMS_PER_THREAD * n_threads if n_threads > 1 else 1


def attention_scratch_bytes(shape: AttentionShape) -> int:
    """Work memory of each thread: factors, queries, a split's scores, its partial, the running one of all splits."""
    n_query = TILE_ROWS * (shape.n_head // shape.n_head_kv)
    return FACTORS_BYTES + query_bytes(n_query, shape.head_dim_k) + n_query * SPLIT_TOKENS * 4 + 2 * partial_bytes(
        n_query, padded(shape.head_dim_v))


def attention_partials_bytes(shape: AttentionShape, n_threads: int, n_ctx: int) -> int:
    """Memory, shared by the threads, for the partials of a step of few tiles; no sequence is longer than `n_ctx`."""
    if n_threads == 1:
        return 0
    max_tiles = (attention_items(n_threads) - 1) // shape.n_head_kv
    n_splits = -(-n_ctx // SPLIT_TOKENS)
    n_query = TILE_ROWS * (shape.n_head // shape.n_head_kv)
    return max_tiles * shape.n_head_kv * n_splits * partial_bytes(n_query, padded(shape.head_dim_v))
