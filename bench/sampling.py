"""What does choosing a token cost? Milliseconds a token by chain and kind of logits, without a model.

    python bench/sampling.py [n_vocab]
"""

import json
import statistics
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling import Sampler, SamplingMemory

N_VOCAB = 152_000
REPEATS = 101
HISTORY = 500           # tokens before the one that is chosen

CHAINS: dict[str, dict[str, Any]] = {
    "default": {}, "top_k 0": {"top_k": 0}, "top_k 0, min_p 0": {"top_k": 0, "min_p": 0},
    "min_p alone": {"top_k": 0, "top_p": 1}, "no cut": {"top_k": 0, "top_p": 1, "min_p": 0},
    "greedy": {"temperature": 0}, "penalties": {"repeat_penalty": 1.1}, "dry": {"dry_multiplier": 0.8},
    "top_n_sigma": {"top_n_sigma": 1}, "typ_p": {"typical_p": 0.9}, "xtc": {"xtc_probability": 0.5},
    "dynatemp": {"dynatemp_range": 0.3}, "top_k 0, typ_p": {"top_k": 0, "typical_p": 0.9},
    "top_k 0, xtc": {"top_k": 0, "top_p": 1, "min_p": 0, "xtc_probability": 1, "xtc_threshold": 1e-4},
    "top_k 0, dynatemp": {"top_k": 0, "top_p": 1, "min_p": 0, "dynatemp_range": 0.3},
    "mirostat 1": {"mirostat": 1}, "mirostat 2": {"mirostat": 2},
    "logit bias": {"logit_bias": ((5, 1.0),)},
}


def kinds(n_vocab: int) -> dict[str, NDArray[np.float32]]:
    """Logits (n_vocab,): of a model that is sure, of one that is not, and the hardest to choose from."""
    rng = np.random.default_rng(0)
    normal = rng.normal(0, 2, n_vocab)
    return {"peaked": (normal + 10 * (rng.random(n_vocab) < 1e-4)).astype(np.float32),
            "broad": (1.5 * normal).astype(np.float32), "all equal": np.zeros(n_vocab, np.float32)}


def milliseconds(params: dict[str, Any], logits: NDArray[np.float32], n_rows: int = 1) -> list[float]:
    """Of each of REPEATS steps of `n_rows` requests on one thread, after some to warm up."""
    memory, tokens = SamplingMemory(), list(range(HISTORY))
    samplers = [Sampler(SamplingParams(seed=1 + i, **params)) for i in range(n_rows)]
    times = []
    for _ in range(5 + REPEATS):
        start = time.perf_counter()
        memory.choose(logits[None], [(0, sampler, tokens, None) for sampler in samplers], len(logits))
        times.append(1e3 * (time.perf_counter() - start))
    return times[5:]


def main() -> None:
    n_vocab = int(sys.argv[1]) if len(sys.argv) > 1 else N_VOCAB
    logits = kinds(n_vocab)
    print(f"median (slowest tenth) ms a token, vocabulary of {n_vocab:,}")
    print(f"{'':18}" + "".join(f"{kind:>18}" for kind in logits))
    results: dict[str, dict[str, float]] = {}
    for name, params in CHAINS.items():
        times = {kind: milliseconds(params, x) for kind, x in logits.items()}
        results[name] = {kind: round(statistics.median(t), 4) for kind, t in times.items()}
        print(f"{name:18}" + "".join(
            f"{f'{statistics.median(t):.3f} ({statistics.quantiles(t, n=10)[-1]:.3f})':>18}" for t in times.values()))
    python_ms = statistics.median(milliseconds({"temperature": 0}, np.zeros(16, np.float32), n_rows=8))
    print(f"a step of 8 requests to a model of 16 tokens, so Python alone: {python_ms:.3f} ms")
    print(json.dumps({"bench": "sampling", "n_vocab": n_vocab, "repeats": REPEATS, "median_ms": results,
                      "python_8_ms": round(python_ms, 4)}))


if __name__ == "__main__":
    main()
