"""Whether what requests reuse has the bits of what they would have computed, over very many requests.

`python bench/cache_audit.py [--requests 100000] [--seed 0] [MODEL...]`, tiny random models by name (tests/data/arch);
by default ones with and without windows, and one of heads wide enough for a q8_0 cache. Requests share much, in pools
too small for them, so that pages are copied, evicted and computed again; all that reuse something are audited.

Prints a table and one line of JSON; exits 1 if there are differences.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.environment import commit, machine
from ggpy.backends.base import KVType
from tests.backends.steps import cpu
from tests.engine.sharing import Sharing
from tests.models.arch_data import load_arch, load_wide_heads

WIDE = "wide_heads"
MODELS = ("llama_q8_0", "gemma3", "gpt-oss", "qwen2", WIDE)
COLUMNS = ("requests", "hits", "audits", "preempted", "evicted", "differences")


def run(name: str, n_requests: int, seed: int, folder: Path) -> dict[str, object]:
    """What became of `n_requests` on one tiny model, and how many differences there were."""
    model = load_wide_heads(folder) if name == WIDE else load_arch(name, folder)
    cache_type: KVType = "q8_0" if name == WIDE else "f16"
    with cpu(model, n_pages=16, table_pages=8, max_tokens=96, max_outputs=1, cache_type_k=cache_type,
             cache_type_v=cache_type) as backend:
        sharing = Sharing(backend, backend.n_vocab, seed)
        sharing.run(n_requests)
    counts = {**sharing.counts, "differences": len(sharing.differences)}
    return {"model": name, "cache": cache_type, **{column: counts.get(column, 0) for column in COLUMNS}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    parser.add_argument("--requests", type=int, default=100_000, help="of all models together (default 100000)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    results = []
    start = time.perf_counter()
    print(f"{'model':12} {'cache':6}" + "".join(f"{column:>13}" for column in COLUMNS))
    with tempfile.TemporaryDirectory() as folder:
        for i, name in enumerate(args.models):
            result = run(name, -(-args.requests // len(args.models)), args.seed + i, Path(folder))
            results.append(result)
            print(f"{name:12} {result['cache']:6}" + "".join(f"{result[column]:13,}" for column in COLUMNS), flush=True)
    print(json.dumps({"bench": "cache_audit", "commit": commit(), "machine": machine(), "seed": args.seed,
                      "seconds": round(time.perf_counter() - start), "results": results}))
    return int(any(result["differences"] for result in results))


if __name__ == "__main__":
    sys.exit(main())
