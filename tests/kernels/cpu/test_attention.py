"""Attention against float64 over the rounded pool, and the same bits for any rows, chunks, threads and pages."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.formats.kv import PAGE_TOKENS, KVType
from ggpy.kernels.cpu.arguments import ATTENTION, QUANTIZE, argument_block
from ggpy.kernels.cpu.attention_memory import attention_items, attention_partials_bytes, attention_scratch_bytes
from ggpy.kernels.cpu.exp import LOG2_E
from ggpy.kernels.cpu.step import STEP, TILE_ROWS
from tests.kernels.cpu.kv_pools import k_pool, put_k, put_v, rounded, v_pool

Float32 = npt.NDArray[np.float32]
RunKernel = Callable[..., None]
TOLERANCE = 2e-6        # of the largest value
NO_PAGE = -(1 << 30)    # reading such a page is a crash
NO_INT8 = {"q": 0, "da": 0, "ys": 0, "n16": 0, "n_blocks": 0}


@dataclass(frozen=True)
class Shape:
    """An attention layer; window 0 and softcap 0 mean none. Sinks and slopes are given per head, or not at all."""

    n_head: int = 2
    n_head_kv: int = 1
    head_dim_k: int = 32
    head_dim_v: int = 32
    window: int = 0
    softcap: float = 0.0
    sinks: tuple[float, ...] = ()
    causal: bool = True
    alibi: tuple[float, ...] = ()

    @property
    def scale(self) -> float:
        return 1.5 / float(np.sqrt(self.head_dim_k))


class OneSequence:
    """Queries, keys and values of `n` positions, and the pools that hold the keys and values."""

    def __init__(self, shape: Shape, n: int, k_type: KVType = "f32", v_type: KVType | None = None, *,
                 shuffled: bool = False) -> None:
        rng = np.random.default_rng(n)
        self.shape, self.n, self.k_type, self.v_type = shape, n, k_type, v_type or k_type
        self.x, k, v = (rng.standard_normal((n, *head)).astype(np.float32) for head in (
            (shape.n_head, shape.head_dim_k), (shape.n_head_kv, shape.head_dim_k), (shape.n_head_kv, shape.head_dim_v)))
        self.k, self.v = rounded(k, self.k_type), rounded(v, self.v_type)
        n_pages = -(-n // PAGE_TOKENS)
        # the second row is this layer's group; what stands before the first page that is seen, or after the last, is
        # no page at all
        self.tables = np.full((2, n_pages + 2), NO_PAGE, np.int32)
        self.table = self.tables[1]
        self.table[:n_pages] = rng.permutation(n_pages + 3)[:n_pages] if shuffled else np.arange(n_pages)
        # slots that no token fills hold what an earlier sequence left there
        self.k_pool = k_pool(self.k_type, n_pages + 3, shape.n_head_kv, shape.head_dim_k, filler=1e4)
        self.v_pool = v_pool(self.v_type, n_pages + 3, shape.n_head_kv, shape.head_dim_v, filler=np.nan)
        for t in range(n):
            self.put(t, k[t], v[t])

    def put(self, position: int, k: Float32, v: Float32) -> None:
        """Stores one token, (n_head_kv, dim) each."""
        page, slot = self.table[position // PAGE_TOKENS], position % PAGE_TOKENS
        put_k(self.k_pool, page, slot, k)
        put_v(self.v_pool, page, slot, v)

    def queries(self) -> npt.NDArray[np.float64]:
        """The queries as they meet the keys: of 16 bits where these are q8_0."""
        if self.k_type != "q8_0":
            return self.x.astype(np.float64)
        factor = np.float32(self.shape.scale)
        factor = factor / np.float32(self.shape.softcap) if self.shape.softcap else factor * np.float32(LOG2_E)
        scaled = self.x * factor
        largest = np.abs(scaled).max(axis=-1, keepdims=True)
        q16 = np.rint(scaled * (np.float32(32767) / largest)).astype(np.float64)
        queries: npt.NDArray[np.float64] = q16 * largest / 32767 / np.float64(factor)
        return queries

    def expected(self) -> Float32:
        """Attention of every position in float64."""
        shape = self.shape
        group = shape.n_head // shape.n_head_kv
        k, v = (np.repeat(a.astype(np.float64), group, axis=1) for a in (self.k, self.v))
        scores = np.einsum("ihd,jhd->hij", self.queries(), k) * shape.scale
        if shape.softcap:
            scores = shape.softcap * np.tanh(scores / shape.softcap)
        i, j = np.arange(self.n)[:, None], np.arange(self.n)
        if shape.alibi:
            scores -= np.array(shape.alibi)[:, None, None] * np.abs(i - j)
        scores[:, ((j > i) & shape.causal) | (i - j >= (shape.window or self.n))] = -np.inf
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
            tiles.append((first_row, n, start, run.stop, seq.tables.ctypes.data))
            first_row += n
    tile_array = np.array(tiles, np.int64)
    x = np.concatenate([seq.x[run.start: run.stop] for run in rows])
    out = np.full((first_row, shape.n_head, shape.head_dim_v), np.nan, np.float32)
    stride = attention_scratch_bytes(shape)
    scratch = np.full(n_threads * stride, 0xFF, np.uint8)
    partials = np.full(attention_partials_bytes(shape, n_threads, seq.n), 0xFF, np.uint8)
    sinks, alibi = np.array(shape.sinks, np.float32), np.array(shape.alibi, np.float32)
    int8_fields = {**int8.fields, "n_blocks": int8.n_blocks} if int8 else NO_INT8
    block = argument_block(
        ATTENTION, x=x.ctypes.data, k_pool=seq.k_pool.ctypes.data, v_pool=seq.v_pool.ctypes.data,
        table_row=seq.tables[0].nbytes, n_head=shape.n_head, n_head_kv=shape.n_head_kv, head_dim_k=shape.head_dim_k,
        head_dim_v=shape.head_dim_v, scale=shape.scale, window=shape.window, softcap=shape.softcap,
        causal=int(shape.causal), alibi=alibi.ctypes.data if shape.alibi else 0,
        sinks=sinks.ctypes.data if shape.sinks else 0, partials=partials.ctypes.data, out=out.ctypes.data,
        **int8_fields)
    for kernel in (f"attention.attend_{seq.k_type}_{seq.v_type}", "attention.combine"):
        run_kernel(kernel, block, n_threads, attention_items(n_threads), n_tokens=first_row, n_tiles=len(tiles),
                   tiles=tile_array.ctypes.data, scratch=scratch.ctypes.data, scratch_stride=stride)
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
    "alibi": Shape(4, 2, alibi=(0.5, 0.25, 0.03, 0.0)),
}
ENCODER_SHAPES = {
    "one head of 32": Shape(1, 1, causal=False),
    "three heads of 16": Shape(3, 3, 16, 16, causal=False),
    "groups of 2, 64 wide, alibi": Shape(4, 2, 64, 64, causal=False, alibi=(0.5, 0.25, 0.03, 0.0)),
}
POOLS: tuple[tuple[KVType, KVType], ...] = (("f16", "f16"), ("f32", "f32"), ("q8_0", "q8_0"), ("q8_0", "f16"),
                                            ("f16", "q8_0"))


def in_blocks(shape: Shape) -> bool:
    """Whether q8_0 can hold such heads."""
    return shape.head_dim_k % 32 == 0 and shape.head_dim_v % 32 == 0


def cases(*pools: tuple[KVType, KVType]) -> pytest.MarkDecorator:
    """Every shape with each of the pools that can hold it."""
    return pytest.mark.parametrize(("shape", "types"), [
        pytest.param(shape, types, id=f"{name}, {'/'.join(types)}") for name, shape in SHAPES.items()
        for types in pools if "q8_0" not in types or in_blocks(shape)])


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


@cases(*POOLS)
def test_attention_is_what_float64_says(run_kernel: RunKernel, shape: Shape, types: tuple[KVType, KVType]) -> None:
    """Every position of a prompt, over three splits."""
    seq = OneSequence(shape, 530, *types)
    out = attend(run_kernel, seq, whole(530))
    assert np.abs(out - seq.expected()).max() <= TOLERANCE * np.abs(seq.expected()).max()


def test_queries_of_16_bits_change_little(run_kernel: RunKernel) -> None:
    """Over keys of q8_0 the output is within 1e-4 of that of exact queries; rounding keys costs more."""
    seq = OneSequence(Shape(14, 2, 64, 64), 300, "q8_0")
    out = attend(run_kernel, seq, whole(300))
    seq.k_type = "f32"
    assert np.abs(out - seq.expected()).max() <= 1e-4 * np.abs(out).max()


@pytest.mark.parametrize("scale", [0.0, 1e-38, 1e30])
def test_queries_of_any_size_meet_q8_0_keys(run_kernel: RunKernel, scale: float) -> None:
    """Zero and minute queries average the values, great ones take that of the best key."""
    seq = OneSequence(Shape(1, 1), 5, "q8_0")
    seq.x[4] *= np.float32(scale)
    best = np.argmax(seq.k[:, 0] @ seq.x[4, 0].astype(np.float64))
    expected = seq.v[best, 0] if scale > 1 else seq.v[:, 0].mean(axis=0)
    assert np.allclose(attend(run_kernel, seq, whole(5))[4, 0], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("n", [31, 32, 33, 255, 256, 257, 700])
def test_lengths_around_pages_and_splits(run_kernel: RunKernel, n: int, kind: KVType) -> None:
    """The last positions of a sequence whose end is near the end of a page or split."""
    seq = OneSequence(Shape(7, 1, 64, 64), n, kind)
    rows = [range(n - 3, n)]
    out, expected = attend(run_kernel, seq, rows), seq.expected()[n - 3:]
    assert np.abs(out - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_great_and_small_scores(run_kernel: RunKernel) -> None:
    """Scores hundreds apart, in different splits, neither overflow nor vanish wrongly."""
    seq = OneSequence(Shape(1, 1, 16, 16), 600)
    seq.x *= 60
    out, expected = attend(run_kernel, seq, whole(600)), seq.expected()
    assert np.abs(out - expected).max() <= 1e-4 * np.abs(expected).max()       # float32 scores of 500 are 3e-5 apart


@cases(("f16", "f16"), ("q8_0", "q8_0"))
def test_bits_do_not_depend_on_company(run_kernel: RunKernel, shape: Shape, types: tuple[KVType, KVType]) -> None:
    """One token at a time, chunks of 7, and the whole prompt give the same bits, by one, two or three threads."""
    n = 290
    seq = OneSequence(shape, n, *types)
    out = attend(run_kernel, seq, whole(n))
    for n_threads in (2, 3):
        assert np.array_equal(attend(run_kernel, seq, whole(n), n_threads), out)
        assert np.array_equal(attend(run_kernel, seq, chunks(n, 7), n_threads), out)
    for i in (0, 1, 31, 32, 63, 64, 200, 255, 256, 257, 288, 289):
        for n_threads in (1, 2, 3):
            assert np.array_equal(attend(run_kernel, seq, [range(i, i + 1)], n_threads)[0], out[i])


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_rows_of_a_mixed_step(run_kernel: RunKernel, n_threads: int, kind: KVType) -> None:
    """Two single rows and a chunk across the border of a split, in one step, have the bits of the whole prompt."""
    seq = OneSequence(Shape(7, 1, 64, 64, window=100), 600, kind)
    out = attend(run_kernel, seq, whole(600))
    rows = [range(599, 600), range(250, 261), range(30, 31)]
    expected = np.concatenate([out[run.start: run.stop] for run in rows])
    assert np.array_equal(attend(run_kernel, seq, rows, n_threads), expected)


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_bits_do_not_depend_on_page_numbers(run_kernel: RunKernel, kind: KVType) -> None:
    """Pages in any order give the same bits."""
    shape = Shape(4, 2, 64, 64)
    straight, shuffled = (OneSequence(shape, 400, kind, shuffled=shuffled) for shuffled in (False, True))
    assert np.array_equal(straight.k, shuffled.k)
    assert np.array_equal(attend(run_kernel, straight, whole(400)), attend(run_kernel, shuffled, whole(400)))


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("first", [380, 600, 693])
def test_pages_before_the_window_are_never_touched(run_kernel: RunKernel, first: int, n_threads: int,
                                                   kind: KVType) -> None:
    """Rows give the same bits when the pages wholly before the window of the first of them are gone."""
    seq = OneSequence(Shape(4, 2, window=70), 700, kind)
    before = attend(run_kernel, seq, [range(first, 700)], n_threads)
    seq.table[: (first - 69) // PAGE_TOKENS] = NO_PAGE
    assert np.array_equal(attend(run_kernel, seq, [range(first, 700)], n_threads), before)


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


@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_a_row_does_not_see_what_comes_later(run_kernel: RunKernel, kind: KVType) -> None:
    """Changing keys and values after a position leaves its bits alone, even within its tile."""
    seq = OneSequence(SHAPES["groups of 7, 64 wide"], 70, kind)
    before = attend(run_kernel, seq, whole(70))
    for position in range(66, 70):
        seq.put(position, np.full((2, 64), 5, np.float32), np.full((2, 64), -9, np.float32))
    after = attend(run_kernel, seq, whole(70))
    assert np.array_equal(after[:66], before[:66])
    assert not np.array_equal(after[66:], before[66:])


@pytest.mark.parametrize("shape", ENCODER_SHAPES.values(), ids=ENCODER_SHAPES)
@pytest.mark.parametrize("n", [1, 33, 255, 530])
def test_without_causality_rows_see_the_whole_sequence(run_kernel: RunKernel, shape: Shape, n: int) -> None:
    """Every position of a text that is computed whole, with the same bits by any number of threads."""
    seq = OneSequence(shape, n, "f16")
    out = attend(run_kernel, seq, whole(n))
    assert np.abs(out - seq.expected()).max() <= TOLERANCE * np.abs(seq.expected()).max()
    assert all(np.array_equal(attend(run_kernel, seq, whole(n), n_threads), out) for n_threads in (2, 3))


def test_without_causality_texts_of_a_step_do_not_see_each_other(run_kernel: RunKernel) -> None:
    """A text has the same bits alone and between others."""
    seq = OneSequence(Shape(2, 1, causal=False), 40, "f16")
    out = attend(run_kernel, seq, [range(40), range(40), range(40)], 2)
    alone = attend(run_kernel, seq, whole(40))
    assert all(np.array_equal(part, alone) for part in np.split(out, 3))
