"""Mixture of experts: routing, the order of slots, linears over chunks, and the weighted sum."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.formats import get_format
from ggpy.gguf import TensorType
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import (
    EXPERT_FLOAT_LINEAR,
    EXPERT_LINEAR,
    EXPERT_QUANTIZE,
    EXPERT_SUM,
    FLOAT_LINEAR,
    LINEAR,
    PACK,
    QUANTIZE,
    ROUTE,
    argument_block,
)
from ggpy.kernels.cpu.packing import Packing, packing_of
from ggpy.kernels.cpu.step import STEP

RunKernel = Callable[..., None]
Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Block = npt.NDArray[np.int64]

SCORINGS = ["softmax", "sigmoid", "softmax_after"]
EXACT_TYPES = [TensorType.F32, TensorType.F16, TensorType.Q8_0, TensorType.Q4_1]


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """Compiles all kernels of this file at once, in parallel."""
    names = ("arrange", "quantize", "sum", *map("route_{}".format, SCORINGS))
    object_loader.addresses([f"experts.{name}" for name in names]
                            + [f"{packing_of(t).module}.{name}" for t in EXACT_TYPES
                               for name in ("linear", "expert_linear", "pack")])


def address(array: npt.NDArray[np.generic] | None) -> int:
    return 0 if array is None else array.ctypes.data


def normal(*shape: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Routing:
    """The four arrays that routing leaves, with room for n_slots."""

    def __init__(self, n_tokens: int, n_used: int) -> None:
        n_slots = n_tokens * n_used
        self.experts = np.full((n_tokens, n_used), -99, np.int32)
        self.slot_order = np.full(n_slots, -99, np.int32)
        self.chunk_room = np.full((n_slots + 1, 3), -99, np.int64)
        self.n_chunks = np.full(1, -99, np.int64)
        self.fields = {"experts": address(self.experts), "slot_order": address(self.slot_order),
                       "chunks": address(self.chunk_room), "n_chunks": address(self.n_chunks)}

    @property
    def chunks(self) -> list[list[int]]:
        chunks: list[list[int]] = self.chunk_room[:self.n_chunks[0]].tolist()
        assert (self.chunk_room[self.n_chunks[0]:] == -99).all()
        return chunks


@dataclass
class Router:
    """Runs the routing kernels on logits (n_tokens, n_expert)."""

    run: RunKernel
    scoring: str
    n_used: int
    normalise: bool = False
    scale: float = 1.0
    bias: Float32 | None = None

    def __call__(self, logits: Float32, n_threads: int = 1) -> tuple[Float32, Routing]:
        """Weights (n_tokens, n_used) and the routing."""
        routing = Routing(len(logits), self.n_used)
        out = np.full(routing.experts.shape, np.nan, np.float32)
        block = argument_block(
            ROUTE, logits=address(logits), n_expert=logits.shape[1], n_used=self.n_used, normalise=int(self.normalise),
            scale=self.scale, bias=address(self.bias), out=address(out), n_rows=STEP.n_tokens, **routing.fields)
        self.run(f"experts.route_{self.scoring}", block, n_threads, n_tokens=len(logits))
        self.run("experts.arrange", block, n_threads, n_tokens=len(logits))
        return out, routing

    def meaning(self, logits: Float32) -> tuple[Float64, npt.NDArray[np.int64]]:
        """Weights and experts in float64."""
        x = logits.astype(np.float64)
        scores = {"softmax": softmax(x), "sigmoid": 1 / (1 + np.exp(-x)), "softmax_after": x}[self.scoring]
        chosen = np.argsort(-(scores if self.bias is None else scores + self.bias), axis=1, kind="stable")
        chosen = chosen[:, :self.n_used]
        w = np.take_along_axis(scores, chosen, axis=1)
        if self.scoring == "softmax_after":
            w = softmax(w)
        if self.normalise:
            w = w / np.maximum(w.sum(axis=1, keepdims=True), 2.0**-14)
        return w * self.scale, chosen


def softmax(x: Float64) -> Float64:
    e: Float64 = np.exp(x - x.max(axis=1, keepdims=True))
    e /= e.sum(axis=1, keepdims=True)
    return e


def test_hand_made_routing(run_kernel: RunKernel) -> None:
    """Probabilities 0.1, 0.6, 0.3: experts 1 and 2 with weights that become 2/3 and 1/3."""
    logits = np.log(np.array([[0.1, 0.6, 0.3]], np.float32))
    weights, routing = Router(run_kernel, "softmax", 2)(logits)
    np.testing.assert_allclose(weights, [[0.6, 0.3]], rtol=1e-6)
    assert routing.experts.tolist() == [[1, 2]]
    weights, _ = Router(run_kernel, "softmax", 2, normalise=True, scale=3.0)(logits)
    np.testing.assert_allclose(weights, [[2, 1]], rtol=1e-6)


@pytest.mark.parametrize("scoring", SCORINGS)
def test_ties_go_to_the_lower_index(run_kernel: RunKernel, scoring: str) -> None:
    """Of equal experts 1, 2 and 4 the first two are chosen, behind the better expert 3."""
    logits = np.array([[-1, 2, 2, 5, 2]], np.float32)
    _, routing = Router(run_kernel, scoring, 3)(logits)
    assert routing.experts.tolist() == [[3, 1, 2]]


def test_saturated_sigmoids_are_still_told_apart(run_kernel: RunKernel) -> None:
    """Without a bias the logits decide, even where their float32 scores are both 1."""
    weights, routing = Router(run_kernel, "sigmoid", 1)(np.array([[30, 40, 20]], np.float32))
    assert routing.experts.tolist() == [[1]]
    assert weights.tolist() == [[1.0]]


@pytest.mark.parametrize("scoring", SCORINGS)
def test_any_logits_choose_distinct_experts(run_kernel: RunKernel, scoring: str) -> None:
    """NaN and infinite logits never make an index that does not exist."""
    logits = np.array([[np.nan] * 5, [-np.inf] * 5, [np.inf] * 5, [np.nan, 1, -np.inf, np.inf, 2]], np.float32)
    _, routing = Router(run_kernel, scoring, 4)(logits)
    assert routing.experts[:3].tolist() == [[0, 1, 2, 3]] * 3
    assert routing.experts[3].tolist() == [3, 4, 1, 0]


@pytest.mark.parametrize("scoring", SCORINGS)
@pytest.mark.parametrize(("n_expert", "n_used"), [(1, 1), (4, 2), (32, 4), (60, 4), (130, 8), (5, 5)])
@pytest.mark.parametrize("normalise", [False, True])
def test_routing_matches_float64(run_kernel: RunKernel, scoring: str, n_expert: int, n_used: int,
                                 normalise: bool) -> None:
    """The same experts in the same order, weights to a few roundings; with and without a selection bias."""
    logits = 3 * normal(50, n_expert)
    for bias in (None, normal(n_expert, seed=1)):
        router = Router(run_kernel, scoring, n_used, normalise, 2.5, bias)
        weights, routing = router(logits, n_threads=2)
        expected, experts = router.meaning(logits)
        np.testing.assert_array_equal(routing.experts, experts)
        np.testing.assert_allclose(weights, expected, rtol=2e-6)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_slots_are_sorted_by_expert_and_cut_into_chunks(run_kernel: RunKernel, n_threads: int) -> None:
    """40 tokens use expert 2, one uses expert 0, none experts 1 and 3; chunks hold at most 32 slots."""
    wanted = np.full(41, 2)
    wanted[7] = 0
    logits = np.eye(4, dtype=np.float32)[wanted]
    _, routing = Router(run_kernel, "softmax", 1)(logits, n_threads)
    assert routing.slot_order.tolist() == [7, *(i for i in range(41) if i != 7)]
    assert routing.chunks == [[0, 0, 1], [2, 1, 32], [2, 33, 8]]


def test_slot_order_is_a_stable_sort(run_kernel: RunKernel) -> None:
    """Random routing: slots ascend within each expert, chunks cover all places once."""
    _, routing = Router(run_kernel, "softmax", 6)(normal(100, 20))
    np.testing.assert_array_equal(routing.slot_order, np.argsort(routing.experts.ravel(), kind="stable"))
    place = 0
    for expert, first, n in routing.chunks:
        assert first == place
        assert 1 <= n <= 32
        assert (routing.experts.ravel()[routing.slot_order[first: first + n]] == expert).all()
        place += n
    assert place == 600


def test_a_step_without_tokens_has_no_chunks(run_kernel: RunKernel) -> None:
    """Zero rows leave an empty list."""
    _, routing = Router(run_kernel, "softmax", 2)(np.zeros((0, 4), np.float32))
    assert routing.chunks == []


@dataclass
class Experts:
    """Packed weights (n_expert, n_out, n_in) of one type, and the kernels that multiply by them."""

    run: RunKernel
    packing: Packing
    packed: Bytes                   # (n_expert, n_groups, group_bytes)
    n_out: int
    n_in: int
    bias: Float32                   # (n_expert, n_out)

    @classmethod
    def make(cls, run: RunKernel, tensor_type: TensorType, n_expert: int, n_out: int, n_in: int) -> "Experts":
        fmt, packing = get_format(tensor_type), packing_of(tensor_type)
        assert fmt.quantize is not None
        blocks = fmt.quantize(normal(n_expert, n_out, n_in // tensor_type.block_size, tensor_type.block_size, seed=5))
        rows = np.ascontiguousarray(blocks).view(np.uint8).reshape(n_expert, n_out, -1)
        packed = np.zeros((n_expert, -(-n_out // 16), packing.group_bytes(n_in)), np.uint8)
        for source, target in zip(rows, packed, strict=True):
            run(f"{packing.module}.pack", argument_block(
                PACK, source=address(source), packed=address(target), n_out=n_out, n_in=n_in,
                row_bytes=rows.shape[2], group_bytes=packing.group_bytes(n_in)))
        return cls(run, packing, packed, n_out, n_in, normal(n_expert, n_out, seed=6))

    def int8(self, n_rows: int) -> tuple[list[npt.NDArray[np.generic]], dict[str, int]]:
        """Room for n_rows int8 rows, and the fields that point to it."""
        n = n_rows * self.packing.n_blocks(self.n_in)
        room: list[npt.NDArray[np.generic]] = [
            np.full(n * 32, 99, np.int8), np.full(n, 99, np.float32), np.full(n, 99, np.float32),
            np.full(2 * n, 99, np.int32)]
        fields = dict(zip(("q", "da", "ys", "n16"), map(address, room), strict=True))
        return room, fields | {"n_blocks": self.packing.n_blocks(self.n_in)}

    def dense(self, x: Float32, expert: int) -> Float32:
        """x (n, n_in) through one expert by the format's ordinary linear."""
        out = np.full((len(x), self.n_out), np.nan, np.float32)
        fields = {"weight": address(self.packed[expert]), "group_bytes": self.packed.shape[2], "n_out": self.n_out,
                  "out": address(out), "bias": address(self.bias[expert]), "residual": 0, "n_rows": STEP.n_tokens}
        if not self.packing.int8:
            block = argument_block(FLOAT_LINEAR, **fields, x=address(x), n_in=self.n_in)
            self.run(f"{self.packing.module}.linear", block, n_tokens=len(x))
            return out
        room, int8 = self.int8(len(x))
        self.run("quantize.quantize", argument_block(QUANTIZE, x=address(x), n_filled=self.n_in // 32,
                                                     n_rows=STEP.n_tokens, **int8), n_tokens=len(x))
        self.run(f"{self.packing.module}.linear", argument_block(LINEAR, **fields, **int8), n_tokens=len(x))
        assert room
        return out

    def __call__(self, x: Float32, routing: Routing, n_threads: int = 1) -> Float32:
        """x, a row per token or per slot, through the experts of `routing`: (n_slots, n_out)."""
        n_tokens, n_used = routing.experts.shape
        out = np.full((n_tokens * n_used, self.n_out), np.nan, np.float32)
        per_slot = int(len(x) == n_tokens * n_used)
        fields = {"weight": address(self.packed), "expert_bytes": self.packed[0].nbytes,
                  "group_bytes": self.packed.shape[2], "n_out": self.n_out, "n_used": n_used, "out": address(out),
                  "bias": address(self.bias), "n_rows": STEP.n_tokens, **routing.fields}
        kernel = f"{self.packing.module}.expert_linear"
        if not self.packing.int8:
            block = argument_block(EXPERT_FLOAT_LINEAR, **fields, x=address(x), x_per_slot=per_slot, n_in=self.n_in)
            self.run(kernel, block, n_threads, n_tokens=n_tokens)
            return out
        room, int8 = self.int8(len(out))
        self.run("experts.quantize", argument_block(
            EXPERT_QUANTIZE, x=address(x), x_per_slot=per_slot, n_used=n_used, n_filled=self.n_in // 32,
            n_rows=STEP.n_tokens, **int8, **routing.fields), n_threads, n_tokens=n_tokens)
        self.run(kernel, argument_block(EXPERT_LINEAR, **fields, **int8), n_threads, n_tokens=n_tokens)
        assert room
        return out


@pytest.mark.parametrize("tensor_type", EXACT_TYPES)
@pytest.mark.parametrize("n_threads", [1, 2, 3])
@pytest.mark.parametrize("per_slot", [False, True])
def test_expert_linear_gives_the_bits_of_the_dense_one(run_kernel: RunKernel, tensor_type: TensorType, n_threads: int,
                                                       per_slot: bool) -> None:
    """Every slot has what its expert's own linear gives for its row alone; expert 3 gets 40 tokens, some get none."""
    n_expert, n_used, n_tokens = 7, 2, 45
    logits = normal(n_tokens, n_expert)
    logits[:40, 3] = 10
    logits[:, 5] = -10
    _, routing = Router(run_kernel, "softmax", n_used)(logits)
    experts = Experts.make(run_kernel, tensor_type, n_expert, 40, 96)
    x = normal(n_tokens * n_used if per_slot else n_tokens, 96, seed=2)
    result = experts(x, routing, n_threads)
    rows = x if per_slot else np.repeat(x, n_used, axis=0)
    for expert in range(n_expert):
        mine = routing.experts.ravel() == expert
        if mine.any():
            np.testing.assert_array_equal(result[mine], experts.dense(np.ascontiguousarray(rows[mine]), expert))


@pytest.mark.parametrize("tensor_type", [TensorType.F32, TensorType.Q8_0])
def test_a_token_does_not_depend_on_its_company(run_kernel: RunKernel, tensor_type: TensorType) -> None:
    """One token alone gets the bits that it gets among 30."""
    logits, x = normal(30, 4), normal(30, 64, seed=2)
    experts = Experts.make(run_kernel, tensor_type, 4, 17, 64)
    router = Router(run_kernel, "sigmoid", 2, normalise=True)
    weights, routing = router(logits, 2)
    together = experts(x, routing, 2)
    for i in range(30):
        weights_alone, alone = router(logits[i: i + 1])
        np.testing.assert_array_equal(weights_alone, weights[i: i + 1])
        np.testing.assert_array_equal(experts(x[i: i + 1], alone), together[2 * i: 2 * i + 2])


@pytest.mark.parametrize("width", [1, 7, 48, 96, 576])
@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_sum_over_ranks(run_kernel: RunKernel, width: int, n_threads: int) -> None:
    """The weighted sum to float32 roundings, and the bits of a token alone."""
    slots, weights = normal(5 * 4, width), normal(5, 4, seed=1)

    def total(slots: Float32, weights: Float32, n_threads: int) -> Float32:
        out = np.full((len(weights), width), np.nan, np.float32)
        run_kernel("experts.sum", argument_block(
            EXPERT_SUM, slots=address(slots), weights=address(weights), n_used=4, width=width, out=address(out),
            n_rows=STEP.n_tokens), n_threads, n_tokens=len(weights))
        return out

    together = total(slots, weights, n_threads)
    expected = (slots.reshape(5, 4, width).astype(np.float64) * weights[..., None]).sum(axis=1)
    np.testing.assert_allclose(together, expected, atol=2e-6)
    for i in range(5):
        np.testing.assert_array_equal(total(slots[4 * i: 4 * i + 4], weights[i: i + 1], 1), together[i: i + 1])


def test_sum_takes_ranks_in_order(run_kernel: RunKernel) -> None:
    """1 - 1e9 + 1e9 is 0 when summed from the first rank on, in float32."""
    slots, weights = np.array([[1], [-1e9], [1e9]], np.float32), np.ones((1, 3), np.float32)
    out = np.full((1, 1), np.nan, np.float32)
    run_kernel("experts.sum", argument_block(
        EXPERT_SUM, slots=address(slots), weights=address(weights), n_used=3, width=1, out=address(out),
        n_rows=STEP.n_tokens), n_tokens=1)
    assert out.tolist() == [[0.0]]
