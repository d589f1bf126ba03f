"""Where does the time to the first token go? Milliseconds of each part of a start, in fresh processes.

`python bench/start.py [MODEL...]`, catalogue names or paths, by default every model that was pulled. "cold" is a start
without compiled kernels, "warm" the median of some with them; files are in the page cache. The parts add up to the time
from the start of the process until 32 tokens were read and the next one was chosen.

Prints a table and one line of JSON.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.process import run

PARTS = ("interpreter", "import", "header", "tokenizer", "plan", "kernels", "weights", "rest of loading",
         "kernels of sampling", "first pass")
N_TOKENS = 32


class Clock:
    """Adds up the milliseconds of parts."""

    def __init__(self) -> None:
        self.parts = dict.fromkeys(PARTS, 0.0)
        self.kernels = "kernels"        # the part that compiling and loading them belongs to

    def watch(self, owner: Any, name: str, part: str | None) -> None:
        """Count the calls of `owner.name` as `part`; None: as kernels, of the model or of sampling."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **options: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                self.parts[part or self.kernels] += 1000 * (time.perf_counter() - start)

        setattr(owner, name, timed)


def child(model: str, n_threads: int, started: float) -> dict[str, float]:
    """Starts as a user's program does; `started` is when this process was, by the system's monotonic clock."""
    clock = Clock()
    clock.parts["interpreter"] = 1000 * (time.monotonic() - started)
    start = time.perf_counter()
    from ggpy import LLM, SamplingParams, llm, loading
    from ggpy.backends.cpu import backend
    from ggpy.backends.cpu.weights import WeightStore
    from ggpy.kernels.cpu import object_loader
    from ggpy.text import Tokenizer

    clock.parts["import"] = 1000 * (time.perf_counter() - start)
    for owner, name, part in ((llm, "GGUFFile", "header"), (Tokenizer, "from_metadata", "tokenizer"),
                              (loading, "build_model", "plan"), (backend, "lower", "plan"),
                              (object_loader, "addresses", None), (WeightStore, "load", "weights")):
        clock.watch(owner, name, part)
    start = time.perf_counter()
    with LLM(model, n_ctx=4 * N_TOKENS, n_threads=n_threads) as loaded:
        known = sum(clock.parts[part] for part in PARTS[2:])
        clock.parts["rest of loading"] = 1000 * (time.perf_counter() - start) - known
        clock.kernels = "kernels of sampling"
        start = time.perf_counter()
        loaded.generate(list(range(100, 100 + N_TOKENS)), SamplingParams(max_tokens=1))
        clock.parts["first pass"] = 1000 * (time.perf_counter() - start) - clock.parts[clock.kernels]
    return clock.parts


def measure(model: Path, n_threads: int, home: str | None = None) -> dict[str, float]:
    """The parts of one start; `home` is the folder of compiled kernels, if not the usual one."""
    finished = run([sys.executable, __file__, "--child", repr(time.monotonic()), str(model), "-t", str(n_threads)],
                   os.environ | ({"GGPY_HOME": home} if home else {}))
    parts: dict[str, float] = json.loads(finished.lines[-1])
    return parts


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="warm starts (default 5)")
    parser.add_argument("--child", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child is not None:
        print(json.dumps(child(args.models[0], args.threads, args.child)))
        return

    from bench.environment import commit, machine
    from bench.vs_llama_cpp import find_models

    print(f"{machine()}, commit {commit()}, {args.threads} threads; milliseconds")
    print(f"{'':<20} {'cold':>10} {'warm':>10}")
    results = {}
    for model in find_models(args.models, None):
        with tempfile.TemporaryDirectory() as home:
            cold = measure(model.path, args.threads, home)
        measure(model.path, args.threads)       # the usual folder may lack some
        rounds = [measure(model.path, args.threads) for _ in range(args.rounds)]
        warm = {part: statistics.median(each[part] for each in rounds) for part in PARTS}
        results[model.name] = {"cold": cold, "warm": warm}
        print(model.name)
        for part in PARTS:
            print(f"  {part:<18} {cold[part]:>10.1f} {warm[part]:>10.1f}")
        print(f"  {'all':<18} {sum(cold.values()):>10.1f} {sum(warm.values()):>10.1f}", flush=True)
    print(json.dumps({"bench": "start", "machine": machine(), "commit": commit(), "threads": args.threads, "models": {
        name: {kind: {part: round(value, 1) for part, value in parts.items()} for kind, parts in kinds.items()}
        for name, kinds in results.items()}}))


if __name__ == "__main__":
    main()
