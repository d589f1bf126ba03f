"""The methods of candidates, each alone: on few of them and on as many as are never sorted."""

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.sample_candidates import CANDIDATES, FEW, KEEP, OTHERS, RARE, WORK_BYTES, work_bytes

Float32 = npt.NDArray[np.float32]
METHODS = ("weigh", "sort", "settle", "count", "keep", "first", "reach", "find", "best")
SIZES = [1, 15, 16, 700, FEW, FEW + 1, 20_000]
TYPES = {"own_ids": np.int32, "sums": np.float64}


class Candidates:
    """All of `logits`, in memory that is full of other things."""

    def __init__(self, logits: Float32) -> None:
        self.row = logits
        self.pool = np.zeros(len(CANDIDATES._fields), np.int64)
        self.memory = {name: np.full(work_bytes(name, len(logits)), 0xAA, np.uint8) for name in WORK_BYTES}
        self.addresses = object_loader.addresses(f"sample_order.{name}" for name in METHODS)
        self.set(n=len(logits), n_vocab=len(logits), logits=logits.ctypes.data)
        self.set(**{name: memory.ctypes.data for name, memory in self.memory.items()})
        self.set(**{name: self.addresses[f"sample_order.{name}"] for name in METHODS})

    def set(self, **values: float) -> None:
        for name, value in values.items():
            field = self.pool[getattr(CANDIDATES, name) // 8 :][:1]
            kind = {"cut": np.float32, "target": np.float64}.get(name, np.int64)
            field.view(kind)[0] = value

    def get(self, name: str) -> int:
        return int(self.pool[getattr(CANDIDATES, name) // 8])

    def total(self) -> float:
        return float(self.pool[CANDIDATES.total // 8 :][:1].view(np.float64)[0])

    def call(self, method: str, args: int = 0, how: int = 0) -> None:
        kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)(self.get(method))
        kernel(args, self.pool.ctypes.data, how, 0)

    def array(self, name: str) -> npt.NDArray[Any]:
        """What `logits`, `ids` or `keys` have the address of, or all of a work memory."""
        names = {"ids": "own_ids", "keys": "own_keys", "logits": "own_logits"}
        memory = self.memory[names.get(name, name)].view(TYPES.get(names.get(name, name), np.float32))
        if name in names and self.get(name) != memory.ctypes.data:
            return np.arange(self.get("n")) if name == "ids" else self.row[: self.get("n")]
        return memory[: self.get("n")]


def normal(n: int, levels: int | None = None) -> Float32:
    """Logits, of so many different values if `levels` says so; the last one cannot come."""
    rng = np.random.default_rng(n)
    logits = rng.normal(0, 4, n) if levels is None else rng.integers(0, levels, n).astype(np.float64)
    if n > 1:
        logits[-1] = -np.inf
    return logits.astype(np.float32)


@pytest.mark.parametrize("n", SIZES)
def test_weights_are_exponentials_of_what_lies_below_the_best(n: int) -> None:
    """Within 3e-7; their sums by blocks and in total are float64."""
    logits = normal(n)
    candidates = Candidates(logits)
    candidates.call("weigh")
    weights = candidates.array("weights")
    np.testing.assert_allclose(weights, np.exp((logits - logits.max()).astype(np.float64)), rtol=3e-7, atol=1e-37)
    assert candidates.total() == pytest.approx(weights.sum(dtype=np.float64), rel=1e-14)
    first_sum = candidates.memory["sums"].view(np.float64)[0]
    assert first_sum == pytest.approx(weights[:512].sum(dtype=np.float64), rel=1e-14)


@pytest.mark.parametrize("levels", [None, 7])
@pytest.mark.parametrize("n", SIZES)
def test_candidates_settle_in_the_order_of_a_stable_sort(n: int, levels: int | None) -> None:
    """Few do so at once; many have keys until they are asked to."""
    logits = normal(n, levels)
    candidates = Candidates(logits)
    candidates.call("sort")
    assert (candidates.get("keys") != 0) == (n > FEW)
    if candidates.get("keys"):
        candidates.call("settle")
    order = np.argsort(-logits, kind="stable")
    assert candidates.array("ids").tolist() == order.tolist()
    assert candidates.array("logits").tolist() == logits[order].tolist()


@pytest.mark.parametrize("n", SIZES)
def test_what_stands_in_order_is_left_alone(n: int) -> None:
    """Nothing is copied."""
    candidates = Candidates(np.linspace(5, -5, n).astype(np.float32))
    candidates.call("sort")
    assert (candidates.get("keys"), candidates.get("ids"), candidates.get("is_sorted")) == (0, 0, 1)


@pytest.mark.parametrize("how", [KEEP, OTHERS])
@pytest.mark.parametrize("n", SIZES)
def test_keep(n: int, how: int) -> None:
    """Those above the cut, and of those equal to it the ones up to a place; or the others. Counting them is apart."""
    logits, at = normal(n, 4), n // 2
    kept = (logits > 2) | ((logits == 2) & (np.arange(n) <= at))
    candidates = Candidates(logits)
    candidates.set(cut=2, at=at)
    candidates.call("count", logits.ctypes.data)
    assert (candidates.get("n_kept"), candidates.get("n")) == (kept.sum(), n)
    candidates.call("keep", logits.ctypes.data, how)
    assert candidates.array("ids").tolist() == np.flatnonzero(kept == (how == KEEP)).tolist()
    assert candidates.array("logits").tolist() == logits[kept == (how == KEEP)].tolist()


@pytest.mark.parametrize("levels", [None, 7])
@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_reach_is_where_a_running_sum_gets_to(n: int, is_sorted: bool, levels: int | None) -> None:
    """In the order of memory or of keys; never at a candidate that cannot come."""
    logits = normal(n, levels)
    candidates = Candidates(logits)
    if is_sorted:
        candidates.call("sort")
    candidates.call("weigh")
    weights = candidates.array("weights").astype(np.float64)
    has_keys = candidates.get("keys") != 0
    order = np.argsort(-logits, kind="stable") if has_keys else np.arange(n)
    running = np.cumsum(weights[order])
    for part in (1e-300, 0.1, 0.5, 0.999):
        candidates.set(target=part * running[-1])
        candidates.call("reach")
        assert candidates.get("at") == order[np.searchsorted(running, part * running[-1])]
    candidates.set(target=candidates.total())
    candidates.call("reach")
    assert weights[candidates.get("at")] > 0


@pytest.mark.parametrize("k", [1, 300, FEW + 100])
def test_first_of_many(k: int) -> None:
    """The k best stay, in memory as they stood if there still are many."""
    logits = normal(20_000, 9)
    candidates = Candidates(logits)
    candidates.call("sort")
    candidates.call("first", k)
    order = np.argsort(-logits, kind="stable")[:k]
    assert candidates.array("ids").tolist() == (order if k <= FEW else np.sort(order)).tolist()


@pytest.mark.parametrize("n", SIZES)
def test_the_best_is_the_first_of_equal_ones(n: int) -> None:
    """With its logit; where none is finite, the candidates are broken."""
    logits = normal(n, 3)
    candidates = Candidates(logits)
    candidates.call("best")
    assert candidates.array("ids").tolist() == [np.argmax(logits)]
    assert candidates.array("logits").tolist() == [logits.max()]
    banned = Candidates(np.full(n, -np.inf, np.float32))
    banned.call("best")
    assert (candidates.get("is_broken"), banned.get("is_broken")) == (0, 1)


def test_rare_methods_are_not_compiled_with_every_model() -> None:
    """Only a chain that orders many candidates needs them."""
    assert {"sample_order.find", "sample_order.first"} <= set(RARE)
