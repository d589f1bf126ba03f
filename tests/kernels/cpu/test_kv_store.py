"""Keys and values reach their page, slot and head, rounded as NumPy rounds and as formats/ quantises."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.formats.kv import KVType
from ggpy.kernels.cpu.arguments import KV_STORE, argument_block
from ggpy.kernels.cpu.step import TILE_ROWS
from tests.kernels.cpu.kv_pools import Pool, k_pool, put_k, put_v, v_pool

RunKernel = Callable[..., None]
UNTOUCHED = 7


def tiles_of(first_position: int, n_rows: int, tables: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    end = first_position + n_rows
    return np.array([(i, min(TILE_ROWS, n_rows - i), first_position + i, end, tables.ctypes.data)
                     for i in range(0, n_rows, TILE_ROWS)], np.int64)


def stored(run_kernel: RunKernel, k_type: KVType, v_type: KVType, k: npt.NDArray[np.float32],
           v: npt.NDArray[np.float32], table: list[int], first_position: int = 0,
           n_threads: int = 1, k_offset: npt.NDArray[np.float32] | None = None) -> tuple[Pool, Pool]:
    """The pools after storing k, v (n_rows, n_head_kv, dim)."""
    n_rows, n_head_kv, dim_k = k.shape
    keys, values = pools(k_type, v_type, max(table) + 1, n_head_kv, dim_k, v.shape[2])
    tables = np.array([[-1] * len(table), table], np.int32)     # the second row is this layer's group
    tiles = tiles_of(first_position, n_rows, tables)
    run_kernel(f"kv_store.store_{k_type}_{v_type}", argument_block(
        KV_STORE, k=k.ctypes.data, v=v.ctypes.data, k_pool=keys.ctypes.data, v_pool=values.ctypes.data,
        table_row=tables[0].nbytes, k_offset=0 if k_offset is None else k_offset.ctypes.data, n_head_kv=n_head_kv,
        head_dim_k=dim_k, head_dim_v=v.shape[2]),
        n_threads, n_tokens=n_rows, n_tiles=len(tiles), tiles=tiles.ctypes.data)
    return keys, values


def pools(k_type: KVType, v_type: KVType, n_pages: int, n_head_kv: int, dim_k: int, dim_v: int) -> tuple[Pool, Pool]:
    return (k_pool(k_type, n_pages, n_head_kv, dim_k, filler=UNTOUCHED),
            v_pool(v_type, n_pages, n_head_kv, dim_v, filler=UNTOUCHED))


def normal(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(("k_type", "v_type", "dim_k", "dim_v"), [
    *((kind, kind, dim_k, dim_v) for kind in ("f16", "f32") for dim_k, dim_v in (
        (16, 16), (24, 40), (64, 64), (7, 3))),
    ("q8_0", "q8_0", 64, 32), ("q8_0", "f16", 32, 24), ("f32", "q8_0", 7, 96)])
def test_a_token_stands_in_its_page_and_slot(run_kernel: RunKernel, k_type: KVType, v_type: KVType, dim_k: int,
                                             dim_v: int) -> None:
    """40 tokens from position 27 on fill pages 4, 0 and 2 of a sequence, and nothing else is written."""
    k, v = normal(40, 2, dim_k), normal(40, 2, dim_v)
    table = [4, 0, 2]
    expected_k, expected_v = pools(k_type, v_type, 5, 2, dim_k, dim_v)
    for i in range(40):
        page, slot = table[(27 + i) // 32], (27 + i) % 32
        put_k(expected_k, page, slot, k[i])
        put_v(expected_v, page, slot, v[i])
    keys, values = stored(run_kernel, k_type, v_type, k, v, table, first_position=27)
    assert keys.tobytes() == expected_k.tobytes()
    assert values.tobytes() == expected_v.tobytes()


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("n_threads", [2, 3])
def test_threads_share_the_work(run_kernel: RunKernel, n_threads: int, kind: KVType) -> None:
    """Any number of threads leaves the same pages."""
    k, v = normal(33, 3, 64), normal(33, 3, 32)
    alone = stored(run_kernel, kind, kind, k, v, [1, 0])
    shared = stored(run_kernel, kind, kind, k, v, [1, 0], n_threads=n_threads)
    assert [pool.tobytes() for pool in shared] == [pool.tobytes() for pool in alone]


@pytest.mark.parametrize("dim", [16, 13])
def test_float16_rounds_to_nearest_even(run_kernel: RunKernel, dim: int) -> None:
    """Ties, subnormals, overflow, infinities and signed zeros round as in NumPy, in vectors and tails."""
    values = [0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 2**-24, 2**-25, 1.5 * 2**-25, 65504, 65519, 65520, -1e9, np.inf,
              2**-14 - 2**-26]
    k = np.resize(np.array(values, np.float32), (1, 1, dim))
    with np.errstate(over="ignore"):
        expected = k[0, 0].astype(np.float16)
    keys, values_pool = stored(run_kernel, "f16", "f16", k, -k, [0])
    assert keys[0, 0, :, 0].tobytes() == expected.tobytes()
    assert values_pool[0, 0, 0].tobytes() == (-expected).tobytes()


def test_q8_0_rounds_halves_away_from_zero(run_kernel: RunKernel) -> None:
    """With a largest value of 127 the integers are the rounded values; a block of zeros has scale 0."""
    x = np.zeros((1, 1, 64), np.float32)
    x[0, 0, :8] = [127, 0.5, -0.5, 1.5, -2.5, 0.49999997, -126.5, 3.25]
    keys, values = stored(run_kernel, "q8_0", "q8_0", x, x, [0])
    assert values["q"][0, 0, 0, 0, :9].tolist() == [127, 1, -1, 2, -3, 0, -127, 3, 0]
    assert keys["q"][0, 0, :5, 0].ravel().tolist() == [127, 1, -1, 2, -3, 0, -127, 3, 0, 0]
    assert keys["d"][0, 0, :, 0].tolist() == values["d"][0, 0, :, 0].tolist() == [1, 0]
    assert not values["q"][0, 0, 1, 0].any()


@pytest.mark.parametrize("scale", [1e-44, 1e-36, 1e-7, 1e-3, 3.0, 1e5, 8e6])
def test_q8_0_is_what_the_format_says(run_kernel: RunKernel, scale: float) -> None:
    """Blocks of any size, those whose scale vanishes included, get the format's scale and integers."""
    x = normal(1, 2, 96) * np.float32(scale)
    keys, values = stored(run_kernel, "q8_0", "q8_0", x, x, [0])
    expected_k, expected_v = pools("q8_0", "q8_0", 1, 2, 96, 96)
    with np.errstate(all="ignore"):
        put_k(expected_k, 0, 0, x[0])
        put_v(expected_v, 0, 0, x[0])
    kept = expected_v["d"][0, :, :, 0] > 0      # integers times 0 are as good as any others
    assert np.array_equal(keys["d"], expected_k["d"])
    assert np.array_equal(values["d"], expected_v["d"])
    assert np.array_equal(values["q"][0, :, :, 0][kept], expected_v["q"][0, :, :, 0][kept])
    assert np.array_equal(keys["q"][0, :, :, 0].reshape(2, 3, 32)[kept], values["q"][0, :, :, 0][kept])


def test_an_offset_is_taken_off_the_keys_of_q8_0(run_kernel: RunKernel) -> None:
    """Each head has its own; values and keys of float16 stay as they are."""
    k, offset = normal(5, 2, 64), np.arange(128, dtype=np.float32).reshape(2, 64)
    keys, values = stored(run_kernel, "q8_0", "q8_0", k + offset, k, [0], k_offset=offset)
    expected, plain = (stored(run_kernel, "q8_0", "q8_0", x, x, [0]) for x in ((k + offset) - offset, k))
    assert keys.tobytes() == expected[0].tobytes()
    assert values.tobytes() == plain[1].tobytes()
    floats = [stored(run_kernel, "f16", "f16", k, k, [0], k_offset=c)[0].tobytes() for c in (offset, None)]
    assert floats[0] == floats[1]
