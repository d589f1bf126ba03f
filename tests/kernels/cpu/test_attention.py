"""Attention against float64 over the rounded pool, and the same bits for any rows, chunks, threads and pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu.arguments import ATTENTION, QUANTIZE, argument_block
from ggpy.kernels.cpu.attention_memory import attention_partials_bytes, attention_scratch_bytes
from ggpy.kernels.cpu.step import PAGE_TOKENS, STEP, TILE_ROWS

Float32 = npt.NDArray[np.float32]
RunKernel = Callable[..., None]
DTYPES = {"f16": np.float16, "f32": np.float32}
TOLERANCE = 2e-6        # of the largest value
NO_INT8 = {"q": 0, "da": 0, "ys": 0, "n16": 0, "n_blocks": 0}


@dataclass(frozen=True)
class Shape:
    """An attention layer; window 0 and softcap 0 mean none."""

    n_head: int = 2
    n_head_kv: int = 1
    head_dim_k: int = 32
    head_dim_v: int = 32
    window: int = 0
    softcap: float = 0.0
    sinks: tuple[float, ...] = ()

    @property
    def scale(self) -> float:
        return 1.5 / float(np.sqrt(self.head_dim_k))


class OneSequence:
    """Queries, keys and values of `n` positions, and the pools that hold the keys and values."""

    def __init__(self, shape: Shape, n: int, kind: str = "f32", shuffled: bool = False) -> None:
        rng = np.random.default_rng(n)
        self.shape, self.n, self.kind = shape, n, kind
        self.x = rng.standard_normal((n, shape.n_head, shape.head_dim_k)).astype(np.float32)
        self.k = rng.standard_normal((n, shape.n_head_kv, shape.head_dim_k)).astype(DTYPES[kind])
        self.v = rng.standard_normal((n, shape.n_head_kv, shape.head_dim_v)).astype(DTYPES[kind])
        n_pages = -(-n // PAGE_TOKENS)
        self.table = (rng.permutation(n_pages + 3)[:n_pages] if shuffled else np.arange(n_pages)).astype(np.int32)
        # slots that no token fills hold what an earlier sequence left there
        self.k_pool = np.full((n_pages + 3, shape.n_head_kv, shape.head_dim_k, PAGE_TOKENS), 1e4, DTYPES[kind])
        self.v_pool = np.full((n_pages + 3, shape.n_head_kv, PAGE_TOKENS, shape.head_dim_v), np.nan, DTYPES[kind])
        for t in range(n):
            page, slot = self.table[t // PAGE_TOKENS], t % PAGE_TOKENS
            self.k_pool[page, :, :, slot] = self.k[t]
            self.v_pool[page, :, slot] = self.v[t]

    def expected(self) -> Float32:
        """Attention of every position in float64."""
        shape = self.shape
        group = shape.n_head // shape.n_head_kv
        k, v = (np.repeat(a.astype(np.float64), group, axis=1) for a in (self.k, self.v))
        scores = np.einsum("ihd,jhd->hij", self.x.astype(np.float64), k) * shape.scale
        if shape.softcap:
            scores = shape.softcap * np.tanh(scores / shape.softcap)
        i, j = np.arange(self.n)[:, None], np.arange(self.n)
        scores[:, (j > i) | (i - j >= (shape.window or self.n))] = -np.inf
        top = scores.max(-1, keepdims=True)
        p = np.exp(scores - top)
        total = p.sum(-1, keepdims=True)
        if shape.sinks:
            total += np.exp(np.array(shape.sinks)[:, None, None] - top)
        mixed: Float32 = np.einsum("hij,jhd->ihd", p / total, v).astype(np.float32)
        return mixed


@dataclass
class Int8:
    """Room for the int8 form of `n_rows` rows, filled with a pattern that the kernel must overwrite."""

    n_rows: int
    n_blocks: int

    def __post_init__(self) -> None:
        self.arrays = [np.full(self.n_rows * self.n_blocks * size, 99, dtype)
                       for size, dtype in ((32, np.int8), (1, np.float32), (1, np.float32), (2, np.int32))]
        self.fields = dict(zip(("q", "da", "ys", "n16"), (a.ctypes.data for a in self.arrays), strict=True))


def attend(run_kernel: RunKernel, seq: OneSequence, rows: Sequence[range], n_threads: int = 1,
           int8: Int8 | None = None) -> Float32:
    """Output of the rows at the given runs of positions, computed in one step."""
    shape = seq.shape
    tiles, first_row = [], 0
    for run in rows:
        for start in range(run.start, run.stop, TILE_ROWS):
            n = min(TILE_ROWS, run.stop - start)
            tiles.append((first_row, n, start, seq.table.ctypes.data))
            first_row += n
    tile_array = np.array(tiles, np.int64)
    x = np.concatenate([seq.x[run.start: run.stop] for run in rows])
    out = np.full((first_row, shape.n_head, shape.head_dim_v), np.nan, np.float32)
    stride = attention_scratch_bytes(shape)
    scratch = np.full(n_threads * stride, 0xFF, np.uint8)
    partials = np.full(attention_partials_bytes(shape, n_threads, seq.n), 0xFF, np.uint8)
    sinks = np.array(shape.sinks, np.float32)
    int8_fields = {**int8.fields, "n_blocks": int8.n_blocks} if int8 else NO_INT8
    block = argument_block(
        ATTENTION, x=x.ctypes.data, k_pool=seq.k_pool.ctypes.data, v_pool=seq.v_pool.ctypes.data, n_head=shape.n_head,
        n_head_kv=shape.n_head_kv, head_dim_k=shape.head_dim_k, head_dim_v=shape.head_dim_v, scale=shape.scale,
        window=shape.window, softcap=shape.softcap, sinks=sinks.ctypes.data if shape.sinks else 0,
        partials=partials.ctypes.data, out=out.ctypes.data, **int8_fields)
    for kernel in (f"attention.attend_{seq.kind}", "attention.combine"):
        run_kernel(kernel, block, n_threads, n_tokens=first_row, n_tiles=len(tiles), tiles=tile_array.ctypes.data,
                   scratch=scratch.ctypes.data, scratch_stride=stride)
    return out


def whole(n: int) -> list[range]:
    return [range(n)]


def chunks(n: int, size: int) -> list[range]:
    return [range(start, min(n, start + size)) for start in range(0, n, size)]


SHAPES = {
    "one head of 16": Shape(1, 1, 16, 16),
    "groups of 2, 24 wide": Shape(4, 2, 24, 24),
    "groups of 3, 8 wide": Shape(3, 1, 8, 8),
    "groups of 7, 64 wide": Shape(14, 2, 64, 64),
    "groups of 8, 128 wide": Shape(8, 1, 128, 128),
    "groups of 4, 256 wide": Shape(4, 1, 256, 256),
    "groups of 9, 80 wide": Shape(9, 1, 80, 80),
    "keys wider than values": Shape(2, 2, 48, 40),
    "window": Shape(4, 2, window=45),
    "window of one": Shape(2, 2, window=1),
    "softcap": Shape(4, 2, softcap=2.0),
    "sinks": Shape(4, 2, sinks=(0.5, -3.0, 4.0, 0.0)),
    "window, softcap and sinks": Shape(4, 2, window=300, softcap=5.0, sinks=(0.5, -3.0, 4.0, 0.0)),
}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


def test_one_token_sees_itself(run_kernel: RunKernel) -> None:
    """The first position's output is its own value, for each head of the group."""
    seq = OneSequence(Shape(2, 1), 1)
    assert np.array_equal(attend(run_kernel, seq, whole(1))[0], np.repeat(seq.v[0], 2, axis=0))


def test_equal_keys_average_the_values(run_kernel: RunKernel) -> None:
    """With zero queries position i gets the mean of values 0..i."""
    seq = OneSequence(Shape(1, 1), 4)
    seq.x[:] = 0
    seq.v_pool[0, 0, :4] = np.array([8, 4, 0, 4], np.float32)[:, None]
    assert attend(run_kernel, seq, whole(4))[:, 0, 0].tolist() == [8, 6, 4, 4]


def test_a_sink_takes_its_share(run_kernel: RunKernel) -> None:
    """A sink as large as the only score halves the output."""
    seq = OneSequence(Shape(1, 1, sinks=(0.0,)), 1)
    seq.x[:] = 0
    assert np.array_equal(attend(run_kernel, seq, whole(1))[0], seq.v[0] / 2)


@pytest.mark.parametrize("kind", ["f16", "f32"])
@every_shape
def test_attention_is_what_float64_says(run_kernel: RunKernel, shape: Shape, kind: str) -> None:
    """Every position of a prompt, over three splits."""
    seq = OneSequence(shape, 530, kind)
    out = attend(run_kernel, seq, whole(530))
    assert np.abs(out - seq.expected()).max() <= TOLERANCE * np.abs(seq.expected()).max()


@pytest.mark.parametrize("n", [31, 32, 33, 255, 256, 257, 700])
def test_lengths_around_pages_and_splits(run_kernel: RunKernel, n: int) -> None:
    """The last positions of a sequence whose end is near the end of a page or split."""
    seq = OneSequence(Shape(7, 1, 64, 64), n, "f16")
    rows = [range(n - 3, n)]
    out, expected = attend(run_kernel, seq, rows), seq.expected()[n - 3:]
    assert np.abs(out - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_great_and_small_scores(run_kernel: RunKernel) -> None:
    """Scores hundreds apart, in different splits, neither overflow nor vanish wrongly."""
    seq = OneSequence(Shape(1, 1, 16, 16), 600)
    seq.x *= 60
    out, expected = attend(run_kernel, seq, whole(600)), seq.expected()
    assert np.abs(out - expected).max() <= 1e-4 * np.abs(expected).max()       # float32 scores of 500 are 3e-5 apart


@every_shape
def test_bits_do_not_depend_on_company(run_kernel: RunKernel, shape: Shape) -> None:
    """One token at a time, chunks of 7, and the whole prompt give the same bits, by one, two or three threads."""
    n = 290
    seq = OneSequence(shape, n, "f16")
    out = attend(run_kernel, seq, whole(n))
    for n_threads in (2, 3):
        assert np.array_equal(attend(run_kernel, seq, whole(n), n_threads), out)
        assert np.array_equal(attend(run_kernel, seq, chunks(n, 7), n_threads), out)
    for i in (0, 1, 31, 32, 63, 64, 200, 255, 256, 257, 288, 289):
        for n_threads in (1, 2, 3):
            assert np.array_equal(attend(run_kernel, seq, [range(i, i + 1)], n_threads)[0], out[i])


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_rows_of_a_mixed_step(run_kernel: RunKernel, n_threads: int) -> None:
    """Two single rows and a chunk across the border of a split, in one step, have the bits of the whole prompt."""
    seq = OneSequence(Shape(7, 1, 64, 64, window=100), 600, "f16")
    out = attend(run_kernel, seq, whole(600))
    rows = [range(599, 600), range(250, 261), range(30, 31)]
    expected = np.concatenate([out[run.start: run.stop] for run in rows])
    assert np.array_equal(attend(run_kernel, seq, rows, n_threads), expected)


def test_bits_do_not_depend_on_page_numbers(run_kernel: RunKernel) -> None:
    """Pages in any order give the same bits."""
    shape = Shape(4, 2, 64, 64)
    straight, shuffled = (OneSequence(shape, 400, "f16", shuffled) for shuffled in (False, True))
    assert np.array_equal(straight.k, shuffled.k)
    assert np.array_equal(attend(run_kernel, straight, whole(400)), attend(run_kernel, shuffled, whole(400)))


@pytest.mark.parametrize("shape", [Shape(2, 1), Shape(4, 2, 24, 24), Shape(8, 2, 64, 64), Shape(4, 4, 80, 80)])
@pytest.mark.parametrize("rows", [[range(299, 300)], [range(270, 300)], [range(300)]])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_int8_form(run_kernel: RunKernel, shape: Shape, rows: list[range], n_threads: int) -> None:
    """The int8 form, padded blocks included, is what the quantiser makes of the output."""
    seq = OneSequence(shape, 300, "f16")
    n_filled = shape.n_head * shape.head_dim_v // 32
    n_rows = sum(len(r) for r in rows)
    int8, expected = (Int8(n_rows, n_filled + 1) for _ in range(2))
    out = attend(run_kernel, seq, rows, n_threads, int8)
    run_kernel("quantize.quantize", argument_block(
        QUANTIZE, x=out.ctypes.data, n_filled=n_filled, n_rows=STEP.n_tokens, n_blocks=n_filled + 1,
        **expected.fields), n_tokens=n_rows)
    assert all(np.array_equal(a, b) for a, b in zip(int8.arrays, expected.arrays, strict=True))
    assert np.array_equal(out, attend(run_kernel, seq, rows, n_threads))


def test_a_row_does_not_see_what_comes_later(run_kernel: RunKernel) -> None:
    """Changing keys and values after a position leaves its bits alone, even within its tile."""
    seq = OneSequence(SHAPES["groups of 7, 64 wide"], 70, "f16")
    before = attend(run_kernel, seq, whole(70))
    seq.k_pool[2, :, :, 2:] = 5
    seq.v_pool[2, :, 2:] = -9
    assert np.array_equal(attend(run_kernel, seq, whole(70))[:66], before[:66])
