"""Speed, time to first token and memory beside llama.cpp's llama-bench, on this machine, in one run.

`python bench/vs_llama_cpp.py [MODEL...] --llama-bench PATH`: catalogue names or paths, by default every model that was
pulled. Without --llama-bench and the variable LLAMA_BENCH only ours is measured. Each round starts a fresh process of
each engine, in turns first:

- pp512: tokens a second of reading 512 tokens from an empty context; ours with a token sampled at the end.
- tg64: tokens a second of 64 steps of one token from an empty context; ours greedy, through sampling and text.
- first token: milliseconds from the start of a process until it has read 32 tokens and says so; ours with the first
  token chosen. Files are in the page cache and our kernels compiled; "cold" is ours once without compiled kernels.
- memory: resident at most, in MB, of the process of pp512 and tg64, file pages included, child processes added.

Before speed is measured both warm up. Prints a table (median and range of the rounds; a ratio above 1 means that ours
is better) and one line of JSON, and leaves nothing behind. Nothing else should run meanwhile: the load is printed.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.engine_process import N_FIRST, N_GENERATE, N_PROMPT
from bench.environment import commit, machine
from bench.process import Finished, run
from ggpy.hub import catalogue

UNITS = {"pp512": "tok/s", "tg64": "tok/s", "first token": "ms", "memory": "MB"}
LOWER_IS_BETTER = ("first token", "memory")
BUSY_LOAD = 0.5

Sample = dict[str, float]       # row of the table -> value in one round


@dataclass(frozen=True, slots=True)
class Ours:
    """This engine, in processes of the Python that runs the benchmark."""

    n_threads: int

    def sample(self, model: Path) -> Sample:
        """One round."""
        speed = self._process("speed", model)
        rates: Sample = json.loads(speed.lines[-1])
        return rates | {"first token": 1000 * self.first_token_s(model)} | memory(speed)

    def first_token_s(self, model: Path, home: str | None = None) -> float:
        """From the start of the process; `home` is the folder of compiled kernels, if not the usual one."""
        return self._process("first", model, home).first_line_s

    def _process(self, mode: str, model: Path, home: str | None = None) -> Finished:
        script = Path(__file__).with_name("engine_process.py")
        return run([sys.executable, str(script), mode, str(model), str(self.n_threads)],
                   os.environ | ({"GGPY_HOME": home} if home else {}))


@dataclass(frozen=True, slots=True)
class LlamaBench:
    """llama.cpp's benchmark program."""

    program: str
    n_threads: int

    def sample(self, model: Path) -> Sample:
        """One round."""
        speed = self._process(model, "-p", str(N_PROMPT), "-n", str(N_GENERATE))
        tests = [json.loads(line) for line in speed.lines]
        rates = {"pp512": next(test["avg_ts"] for test in tests if test["n_prompt"] == N_PROMPT),
                 "tg64": next(test["avg_ts"] for test in tests if test["n_gen"] == N_GENERATE)}
        first = self._process(model, "-p", str(N_FIRST), "-n", "0", "--no-warmup")
        return rates | {"first token": 1000 * first.first_line_s} | memory(speed)

    def build(self, model: Path) -> str:
        """Which llama.cpp it is."""
        test = json.loads(self._process(model, "-p", "1", "-n", "0", "--no-warmup").lines[0])
        return f"{test['build_commit']} ({test['build_number']})"

    def _process(self, model: Path, *options: str) -> Finished:
        return run([self.program, "-m", str(model), *options, "-t", str(self.n_threads), "-r", "1", "-o", "jsonl"])


def memory(process: Finished) -> Sample:
    """The row of memory, where the system tells it."""
    return {} if process.peak_bytes is None else {"memory": process.peak_bytes / 1e6}


def cold_first_token_ms(ours: Ours, model: Path) -> float:
    """Time to first token when every kernel has to be compiled."""
    with tempfile.TemporaryDirectory() as home:
        return 1000 * ours.first_token_s(model, home)


def ratio(row: str, ours: float, theirs: float) -> float:
    """How many times better ours is."""
    return theirs / ours if row in LOWER_IS_BETTER else ours / theirs


def compare(model: Path, ours: Ours, theirs: LlamaBench | None, *, n_rounds: int, cold: bool) -> dict[str, Any]:
    """All rounds of one model: per row the values of each engine and the ratios."""
    our_samples: list[Sample] = []
    their_samples: list[Sample] = []
    ours.sample(model)                  # compiles what is missing and reads the file once
    for i in range(n_rounds):
        turns: list[tuple[Ours | LlamaBench, list[Sample]]] = [(ours, our_samples)]
        if theirs is not None:
            turns.append((theirs, their_samples))
        for engine, samples in turns if i % 2 == 0 else turns[::-1]:
            samples.append(engine.sample(model))
    result: dict[str, Any] = {}
    for row in our_samples[0]:
        a, b = [sample[row] for sample in our_samples], [sample[row] for sample in their_samples]
        result[row] = {"ours": a, "llama_cpp": b, "ratio": [ratio(row, *pair) for pair in zip(a, b, strict=False)]}
    if cold:
        result["first token, cold"] = {"ours": [cold_first_token_ms(ours, model)], "llama_cpp": [], "ratio": []}
    return result


def print_table(name: str, result: dict[str, Any]) -> None:
    """One model's rows."""
    for row, values in result.items():
        label = f"{row} [{UNITS[row.removesuffix(', cold')]}]"
        print(f"{name:<20} {label:<24} {spread(values['ours'], 1):>26} {spread(values['llama_cpp'], 1):>26} "
              f"{spread(values['ratio'], 2):>20}")


def spread(values: Sequence[float], digits: int) -> str:
    """Median and range."""
    if not values:
        return "-"
    median = f"{statistics.median(values):.{digits}f}"
    return median if len(values) == 1 else f"{median} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def find_models(names: Sequence[str]) -> dict[str, Path]:
    """Name -> file of the models that the command line asks for."""
    if not names:
        present = {entry.name: entry.path for entry in catalogue.CATALOGUE if entry.is_present}
        if not present:
            raise SystemExit("no model was pulled; give a path, or run `ggpy pull smollm2`")
        return present
    models = {}
    for name in names:
        entry = catalogue.find(name)
        path = entry.path if entry is not None else Path(name)
        if not path.is_file():
            raise SystemExit(f"{name} is neither a file nor a pulled model; `ggpy list` shows the models")
        models[entry.name if entry is not None else path.stem] = path
    return models


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--llama-bench", default=os.environ.get("LLAMA_BENCH"), metavar="PATH")
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads of each engine (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds per model (default 5)")
    parser.add_argument("--no-cold", action="store_true", help="leave out the run that compiles all kernels")
    args = parser.parse_args()
    models = find_models(args.models)
    theirs = LlamaBench(args.llama_bench, args.threads) if args.llama_bench else None

    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    if load is not None and load > BUSY_LOAD:
        print(f"warning: the load is {load}: what else runs here slows both engines, not equally", file=sys.stderr)
    peer = theirs.build(next(iter(models.values()))) if theirs else None
    our_commit = commit()
    print(f"{machine()}, load {load}; {args.threads} threads, {args.rounds} rounds; ggpy {our_commit}, "
          + (f"llama.cpp {peer}" if peer else "no llama-bench given: ours only"))
    print(f"{'model':<20} {'':<24} {'ggpy':>26} {'llama.cpp':>26} {'ratio':>20}")
    results = {}
    for name, path in models.items():
        results[name] = compare(path, Ours(args.threads), theirs, n_rounds=args.rounds, cold=not args.no_cold)
        print_table(name, results[name])
        sys.stdout.flush()
    rounded = json.loads(json.dumps(results), parse_float=lambda text: float(f"{float(text):.4g}"))
    print(json.dumps({"bench": "vs_llama_cpp", "machine": machine(), "load": load, "threads": args.threads,
                      "commit": our_commit, "llama_cpp": peer, "models": rounded}))


if __name__ == "__main__":
    main()
