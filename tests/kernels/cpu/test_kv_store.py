"""Keys and values reach their page, slot and head, rounded as NumPy rounds."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import KV_STORE, argument_block
from ggpy.kernels.cpu.step import PAGE_TOKENS, TILE_ROWS

RunKernel = Callable[..., None]
DTYPES = {"f16": np.float16, "f32": np.float32}
UNTOUCHED = 7


def tiles_of(first_position: int, n_rows: int, table: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    return np.array([(i, min(TILE_ROWS, n_rows - i), first_position + i, table.ctypes.data)
                     for i in range(0, n_rows, TILE_ROWS)], np.int64)


def stored(run_kernel: RunKernel, kind: str, k: npt.NDArray[np.float32], v: npt.NDArray[np.float32], table: list[int],
           first_position: int = 0, n_threads: int = 1) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Pools K (page, head, dim, slot) and V (page, head, slot, dim) after storing k, v (n_rows, n_head_kv, dim)."""
    n_rows, n_head_kv, dim_k = k.shape
    dim_v = v.shape[2]
    n_pages = max(table) + 1
    k_pool = np.full((n_pages, n_head_kv, dim_k, PAGE_TOKENS), UNTOUCHED, DTYPES[kind])
    v_pool = np.full((n_pages, n_head_kv, PAGE_TOKENS, dim_v), UNTOUCHED, DTYPES[kind])
    pages = np.array(table, np.int32)
    tiles = tiles_of(first_position, n_rows, pages)
    run_kernel(f"kv_store.store_{kind}", argument_block(
        KV_STORE, k=k.ctypes.data, v=v.ctypes.data, k_pool=k_pool.ctypes.data, v_pool=v_pool.ctypes.data,
        n_head_kv=n_head_kv, head_dim_k=dim_k, head_dim_v=dim_v),
        n_threads, n_tokens=n_rows, n_tiles=len(tiles), tiles=tiles.ctypes.data)
    return k_pool.astype(np.float64), v_pool.astype(np.float64)


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("kind", ["f16", "f32"])
@pytest.mark.parametrize(("dim_k", "dim_v"), [(16, 16), (24, 40), (64, 64), (7, 3)])
def test_a_token_stands_in_its_page_and_slot(run_kernel: RunKernel, kind: str, dim_k: int, dim_v: int) -> None:
    """40 tokens from position 27 on fill pages 4, 0 and 2 of a sequence, and nothing else is written."""
    k, v = normal(40, 2, dim_k), normal(40, 2, dim_v)
    table = [4, 0, 2]
    k_pool, v_pool = stored(run_kernel, kind, k, v, table, first_position=27)
    expected_k, expected_v = np.full_like(k_pool, UNTOUCHED), np.full_like(v_pool, UNTOUCHED)
    for i in range(40):
        page, slot = table[(27 + i) // PAGE_TOKENS], (27 + i) % PAGE_TOKENS
        expected_k[page, :, :, slot] = k[i].astype(DTYPES[kind])
        expected_v[page, :, slot] = v[i].astype(DTYPES[kind])
    assert np.array_equal(k_pool, expected_k)
    assert np.array_equal(v_pool, expected_v)


@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_share_the_work(run_kernel: RunKernel, n_threads: int) -> None:
    """Any number of threads leaves the same pages."""
    k, v = normal(33, 3, 20), normal(33, 3, 32)
    assert all(np.array_equal(a, b) for a, b in zip(stored(run_kernel, "f16", k, v, [1, 0]), stored(
        run_kernel, "f16", k, v, [1, 0], n_threads=n_threads), strict=True))


@pytest.mark.parametrize("dim", [16, 13])
def test_float16_rounds_to_nearest_even(run_kernel: RunKernel, dim: int) -> None:
    """Ties, subnormals, overflow, infinities and signed zeros round as in NumPy, in vectors and tails."""
    values = [0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 2**-24, 2**-25, 1.5 * 2**-25, 65504, 65519, 65520, -1e9, np.inf,
              2**-14 - 2**-26]
    k = np.resize(np.array(values, np.float32), (1, 1, dim))
    with np.errstate(over="ignore"):
        expected = k[0, 0].astype(np.float16).astype(np.float64)
    k_pool, v_pool = stored(run_kernel, "f16", k, -k, [0])
    assert np.array_equal(k_pool[0, 0, :, 0], expected)
    assert np.array_equal(v_pool[0, 0, 0], -expected)
    assert np.array_equal(np.signbit(k_pool[0, 0, :, 0]), np.signbit(expected))
