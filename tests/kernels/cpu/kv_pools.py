"""KV pools as arrays, for tests of the kernels that fill and read them: ggpy/kernels/cpu/kv_pages.py in NumPy."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ggpy.formats.kv import PAGE_TOKENS, KVType
from ggpy.formats.q8 import q8_0_quantize

Float32 = npt.NDArray[np.float32]
Pool = npt.NDArray[Any]
FLOATS = {"f16": np.float16, "f32": np.float32}


def k_pool(kind: KVType, n_pages: int, n_head_kv: int, dim: int, *, filler: float) -> Pool:
    """Pages of keys (n_pages, n_head_kv), filled with a number that no kernel may take for a key."""
    if kind == "q8_0":
        return _q8_0_pool((dim // 2, PAGE_TOKENS, 2), n_pages, n_head_kv, dim, filler)
    return np.full((n_pages, n_head_kv, dim, PAGE_TOKENS), filler, FLOATS[kind])


def v_pool(kind: KVType, n_pages: int, n_head_kv: int, dim: int, *, filler: float) -> Pool:
    """Pages of values (n_pages, n_head_kv)."""
    if kind == "q8_0":
        return _q8_0_pool((dim // 32, PAGE_TOKENS, 32), n_pages, n_head_kv, dim, filler)
    return np.full((n_pages, n_head_kv, PAGE_TOKENS, dim), filler, FLOATS[kind])


def _q8_0_pool(shape: tuple[int, ...], n_pages: int, n_head_kv: int, dim: int, filler: float) -> Pool:
    pool = np.empty((n_pages, n_head_kv), np.dtype([("q", "i1", shape), ("d", "<f2", (dim // 32, PAGE_TOKENS))]))
    pool["q"], pool["d"] = 99, filler
    return pool


def put_k(pool: Pool, page: int, slot: int, k: Float32) -> None:
    """Stores the keys (n_head_kv, dim) of one token."""
    if pool.dtype.names:
        blocks = q8_0_quantize(k.reshape(len(k), -1, 32))
        pool["q"][page, :, :, slot] = blocks["qs"].reshape(len(k), -1, 2)
        pool["d"][page, :, :, slot] = blocks["d"]
    else:
        pool[page, :, :, slot] = k


def put_v(pool: Pool, page: int, slot: int, v: Float32) -> None:
    """Stores the values (n_head_kv, dim) of one token."""
    if pool.dtype.names:
        blocks = q8_0_quantize(v.reshape(len(v), -1, 32))
        pool["q"][page, :, :, slot] = blocks["qs"]
        pool["d"][page, :, :, slot] = blocks["d"]
    else:
        pool[page, :, slot] = v


def rounded(x: Float32, kind: KVType) -> Float32:
    """x (..., dim) as the pool keeps it."""
    if kind != "q8_0":
        return x.astype(FLOATS[kind]).astype(np.float32)
    blocks = q8_0_quantize(x.reshape(*x.shape[:-1], -1, 32))
    values: Float32 = blocks["qs"] * blocks["d"].astype(np.float32)[..., None]
    return values.reshape(x.shape)
