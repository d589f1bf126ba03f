"""Whether requests of random workloads get the tokens and the logits that they get alone, over very many workloads.

`python bench/workloads.py [-n 500] [--seed 0] [MODEL...]`, tiny random models by name (tests/data/arch); by default
ones with and without windows and experts. Each workload has settings of its own: requests at a time, batches, threads,
pools (often for half of what is asked for, or less), layouts of weights, drafts.

Prints what was covered, by model, and one line of JSON; exits 1 if there are differences.
"""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.environment import commit, machine
from tests.engine.workloads import MODELS, workloads
from tests.models.arch_data import load_arch


def run(name: str, n_workloads: int, seed: int, folder: Path) -> Counter[str]:
    """What `n_workloads` on one tiny model covered, and how many differences there were."""
    counts = Counter[str]()
    with workloads(load_arch(name, folder)) as some:
        for i in range(n_workloads):
            outcome = some.run(seed + i)
            counts.update({**outcome.counts, "differences": len(outcome.differences)})
            for text in outcome.differences:
                print(text[:2000], file=sys.stderr)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    parser.add_argument("-n", type=int, default=500, help="workloads of all models together (default 500)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start, totals, results = time.perf_counter(), Counter[str](), []
    with tempfile.TemporaryDirectory() as folder:
        for name in args.models:
            counts = run(name, -(-args.n // len(args.models)), args.seed, Path(folder))
            print(f"{name}: " + ", ".join(f"{n:,} {what}" for what, n in counts.items()), flush=True)
            totals.update(counts)
            results.append({"model": name, **counts})
    print("all: " + ", ".join(f"{n:,} {what}" for what, n in totals.items()))
    print(json.dumps({"bench": "workloads", "commit": commit(), "machine": machine(), "seed": args.seed,
                      "seconds": round(time.perf_counter() - start), "results": results}))
    return int(totals["differences"] > 0)


if __name__ == "__main__":
    sys.exit(main())
