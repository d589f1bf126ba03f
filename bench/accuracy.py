"""How far the default path is from float32, as a multiple of llama.cpp's own distance.

`python bench/accuracy.py [MODEL...]`, catalogue names; by default every model that was pulled. Per prompt the mean over
its last positions of KL(default path || float32) in nats: ours measured now against our float32 path, llama.cpp's
recorded against a NumPy forward pass (tests/data/logits). The float32 path needs four bytes of memory per weight.

Prints a table and one line of JSON.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.environment import commit, machine
from ggpy import LLM
from ggpy.hub import catalogue
from tests.golden.data import PROMPTS, load_golden
from tests.golden.measure import N_CTX, measure_all


def divergence(model: Path, name: str, n_threads: int | None) -> dict[str, dict[str, float]]:
    """Per prompt: mean KL to float32 of ours and of llama.cpp, and the largest of ours at one position."""
    golden = load_golden(name)
    with LLM(model, n_ctx=N_CTX, n_threads=n_threads, compute="f32", cache_type_k="f32", cache_type_v="f32") as llm:
        float32 = measure_all(golden, llm)
    with LLM(model, n_ctx=N_CTX, n_threads=n_threads) as llm:
        default = measure_all(golden, llm)
    result = {}
    for prompt in PROMPTS:
        kl, theirs = default[prompt].tail_kl(float32[prompt]), golden.prompts[prompt].kl_llama_cpp_f32
        result[prompt] = {"ours": float(kl.mean()), "llama_cpp": theirs, "ratio": float(kl.mean()) / theirs,
                          "ours_worst_position": float(kl.max())}
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, help="threads (default: one per core)")
    args = parser.parse_args()
    known = [catalogue.find(name) for name in args.models] if args.models else list(catalogue.CATALOGUE)
    present = [entry for entry in known if entry is not None and entry.is_present]
    if not present or (args.models and len(present) < len(known)):
        raise SystemExit("not every model is there: run `ggpy pull NAME`; `ggpy list` shows the names")

    print(f"{machine()}, commit {commit()}; KL to float32 in nats, mean over a prompt's last positions")
    print(f"{'model':<20} {'prompt':<8} {'ours':>9} {'llama.cpp':>9} {'ratio':>6}")
    results = {}
    for entry in present:
        results[entry.name] = rows = divergence(entry.path, entry.name, args.threads)
        for prompt, row in rows.items():
            print(f"{entry.name:<20} {prompt:<8} {row['ours']:>9.5f} {row['llama_cpp']:>9.5f} {row['ratio']:>6.2f}")
        mean = statistics.geometric_mean(row["ratio"] for row in rows.values())
        print(f"{entry.name:<20} {'geometric mean':<28} {mean:>6.2f}", flush=True)
    print(json.dumps({"bench": "accuracy", "machine": machine(), "commit": commit(), "models": {
        name: {prompt: {key: float(f"{value:.4g}") for key, value in row.items()} for prompt, row in rows.items()}
        for name, rows in results.items()}}))


if __name__ == "__main__":
    main()
