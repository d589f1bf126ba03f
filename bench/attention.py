"""How fast is attention? Milliseconds per layer, in decode (GB/s of KV read) and in prefill (GFLOP/s of visible pairs).

Each layer has pages of its own, so that decode reads memory rather than cache; keys and values are of one type, f16 or
q8_0. Prints a table and one JSON line.

    python bench/attention.py [threads]
"""

import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from ggpy.backends.cpu.memory import Arena
from ggpy.formats.kv import PAGE_TOKENS, KVType
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.arguments import ATTENTION, argument_block
from ggpy.kernels.cpu.attention_memory import attention_items, attention_partials_bytes, attention_scratch_bytes
from ggpy.kernels.cpu.kv_pages import DIM_BYTES
from ggpy.kernels.cpu.level import current_level
from ggpy.kernels.cpu.step import STEP, TILE_ROWS
from ggpy.kernels.cpu.team import Team

REPEATS = 9
TYPES: tuple[KVType, ...] = ("f16", "q8_0")


@dataclass(frozen=True)
class Shape:
    """Attention of one model."""

    name: str
    n_head: int
    n_head_kv: int
    head_dim_k: int
    n_layer: int

    @property
    def head_dim_v(self) -> int:
        return self.head_dim_k


SHAPES = (
    Shape("qwen2.5-0.5b", 14, 2, 64, 24), Shape("qwen2.5-1.5b", 12, 2, 128, 28), Shape("smollm2-135m", 9, 3, 64, 30),
    Shape("gemma3-270m", 4, 1, 256, 18))
CASES = ((511, 1), (4095, 1), (16383, 1), (0, 512), (4096, 512))      # (depth, rows): rows follow `depth` tokens


@dataclass(frozen=True)
class Result:
    """One line of the table; time is the median of REPEATS runs over all layers."""

    shape: str
    kv: str                 # type of keys and values
    depth: int
    rows: int
    threads: int
    ms_per_layer: float
    spread: float           # (slowest - fastest) / median
    gb_per_s: float         # K and V read once
    gflop_per_s: float      # two products of visible pairs


class Bench:
    """A sequence of depth + rows tokens in every layer's pool, and the tape that attends to it."""

    def __init__(self, shape: Shape, depth: int, rows: int, n_threads: int, addresses: dict[str, int],
                 kv: KVType = "f16") -> None:
        self.shape, self.depth, self.rows, self.n_threads, self.kv = shape, depth, rows, n_threads, kv
        n_ctx = depth + rows
        n_pages = -(-n_ctx // PAGE_TOKENS)
        self.layer_bytes = n_pages * shape.n_head_kv * shape.head_dim_k * DIM_BYTES[kv]
        rng = np.random.default_rng(0)
        self.pools = Arena(2 * shape.n_layer * self.layer_bytes, "bench")
        # numbers below 1 as float16; as q8_0, integers of any size and scales below 1
        self.pools.bytes.view(np.float16)[:] = np.resize(
            rng.standard_normal(1 << 20).clip(-0.99, 0.99).astype(np.float16), self.pools.bytes.size // 2)
        self.table = np.arange(n_pages, dtype=np.int32)
        self.x = rng.standard_normal((rows, shape.n_head * shape.head_dim_k)).astype(np.float32)
        self.out = np.empty_like(self.x)
        stride = -(-attention_scratch_bytes(shape) // 4096) * 4096
        self.scratch = Arena(stride * n_threads, "bench")
        self.partials = Arena(attention_partials_bytes(shape, n_threads, n_ctx), "bench")
        self.tiles = np.array([(i, min(TILE_ROWS, rows - i), depth + i, n_ctx, self.table.ctypes.data)
                               for i in range(0, rows, TILE_ROWS)], np.int64)
        self.step = argument_block(STEP, **dict.fromkeys(STEP._fields, 0) | {
            "n_tokens": rows, "n_tiles": len(self.tiles), "tiles": self.tiles.ctypes.data,
            "scratch": self.scratch.address, "scratch_stride": stride})
        self.blocks = [self._block(layer) for layer in range(shape.n_layer)]
        n_items = attention_items(n_threads)
        self.tape = np.array([(addresses[name], block.ctypes.data, 1, n_items) for block in self.blocks
                              for name in (f"attention.attend_{kv}_{kv}", "attention.combine")], np.int64)
        self.team = Team(n_threads, addresses)

    def _block(self, layer: int) -> npt.NDArray[np.int64]:
        shape, k_pool = self.shape, self.pools.address + 2 * layer * self.layer_bytes
        return argument_block(
            ATTENTION, x=self.x.ctypes.data, k_pool=k_pool, v_pool=k_pool + self.layer_bytes, table_row=0,
            n_head=shape.n_head, n_head_kv=shape.n_head_kv, head_dim_k=shape.head_dim_k, head_dim_v=shape.head_dim_v,
            scale=shape.head_dim_k**-0.5, window=0, softcap=0.0, causal=1, alibi=0, sinks=0,
            partials=self.partials.address, out=self.out.ctypes.data, q=0, da=0, ys=0, n16=0, n_blocks=0)

    def run(self) -> Result:
        times = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            self.team.run(self.tape, self.step.ctypes.data)
            times.append((time.perf_counter() - start) / self.shape.n_layer)
        self.team.close()
        median = statistics.median(times)
        pairs = sum(range(self.depth + 1, self.depth + self.rows + 1))
        flops = 4 * pairs * self.shape.n_head * self.shape.head_dim_k
        return Result(self.shape.name, self.kv, self.depth, self.rows, self.n_threads, median * 1e3,
                      (max(times) - min(times)) / median, 2 * self.layer_bytes / median / 1e9, flops / median / 1e9)


def main() -> None:
    n_threads = int(sys.argv[1]) if len(sys.argv) > 1 else len(os.sched_getaffinity(0))
    start = time.perf_counter()
    addresses = object_loader.addresses(["executor.run", "executor.worker", "attention.combine",
                                   *(f"attention.attend_{kv}_{kv}" for kv in TYPES)])
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    print(f"{current_level().name}, commit {commit}, kernels ready in {time.perf_counter() - start:.1f} s")
    print(f"{'model':14}{'KV':>5}{'depth':>7}{'rows':>6}{'threads':>9}{'ms/layer':>10}{'spread':>8}{'GB/s':>7}{'GFLOP/s':>9}")
    results = []
    for shape in SHAPES:
        for depth, rows in CASES:
            for threads in sorted({1, n_threads}):
                for kv in TYPES:
                    r = Bench(shape, depth, rows, threads, addresses, kv).run()
                    print(f"{r.shape:14}{r.kv:>5}{r.depth:7}{r.rows:6}{r.threads:9}{r.ms_per_layer:10.3f}{r.spread:8.0%}"
                          f"{r.gb_per_s:7.1f}{r.gflop_per_s:9.0f}", flush=True)
                    results.append(asdict(r))
    print(json.dumps({"commit": commit, "level": current_level().name, "results": results}))


if __name__ == "__main__":
    main()
