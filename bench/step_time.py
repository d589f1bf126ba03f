"""What does a step take beside its forward pass? Milliseconds between two passes, by streams.

`python bench/step_time.py [MODEL] [--streams 1,8,16] [--steps 300]`: a catalogue name or a path, smollm2 by default.
So many streams are sampled side by side in this process, at a temperature at which little repeats, so few guesses are
checked. Between two passes tokens are chosen, which takes compiled kernels too, and become text; requests are accounted
for, events told, tokens guessed, and the next step is scheduled. All of this waits for memory, since a pass leaves the
caches full of weights.

Prints a table of medians, the slowest tenth in parentheses, and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import NamedTuple
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.choices import counts
from bench.environment import commit, machine
from ggpy.arrays import Float32
from ggpy.backends.base import Backend, StepSequence
from ggpy.engine.client import EngineClient
from ggpy.engine.config import SamplingParams
from ggpy.engine.core import EngineCore
from ggpy.engine.request import Request
from ggpy.engine.speculation import SpeculationConfig
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions, load_core
from ggpy.tools.flags import whole_number

N_CTX = 2048
N_WARM_UP = 32          # steps that are not measured
TEMPERATURE = 1.5
PROMPT = "Once upon a time a lighthouse keeper found letter {} in the sand, which said:"


class Pass(NamedTuple):
    """A forward pass, as time.perf_counter tells it."""

    n_streams: int
    n_rows: int
    begin_s: float
    end_s: float


@contextmanager
def watched(backend: Backend) -> Iterator[list[Pass]]:
    """The passes of `backend` from here on."""
    passes: list[Pass] = []
    forward = backend.forward

    def watched_forward(sequences: Sequence[StepSequence]) -> Float32:
        begin_s = perf_counter()
        logits = forward(sequences)
        end_s = perf_counter()
        passes.append(Pass(len(sequences), sum(len(sequence.tokens) for sequence in sequences), begin_s, end_s))
        return logits

    with patch.object(backend, "forward", watched_forward):
        yield passes


def measure(core: EngineCore, client: EngineClient, n_streams: int, n_steps: int) -> list[tuple[Pass, Pass]]:
    """Passes that follow each other, with a row or more for each of `n_streams`."""
    prompts = [core.tokenizer.encode(PROMPT.format(i)) for i in range(n_streams)]
    params = [SamplingParams(temperature=TEMPERATURE, max_tokens=N_WARM_UP + n_steps, ignore_eos=True, seed=i)
              for i in range(n_streams)]
    with watched(core.backend) as passes:
        streams = [client.submit(Request(*each)) for each in zip(prompts, params, strict=True)]
        for stream in streams:
            stream.finish()
    pairs = [(a, b) for a, b in pairwise(passes[N_WARM_UP:]) if a.n_streams == b.n_streams == n_streams]
    if len(pairs) < 2:
        raise SystemExit(f"too few steps had {n_streams} streams; ask for more (--steps)")
    return pairs


def summary(times_s: Sequence[float]) -> dict[str, float]:
    """Milliseconds: median and slowest tenth."""
    return {"p50": round(1000 * statistics.median(times_s), 3),
            "p90": round(1000 * statistics.quantiles(times_s, n=10)[-1], 3)}


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", metavar="MODEL")
    parser.add_argument("--streams", type=counts, default=[1, 8, 16],
                        metavar="N,...", help="side by side (default 1,8,16)")
    parser.add_argument("--steps", type=whole_number(8, N_CTX // 2), default=300, metavar="N", help="default 300")
    parser.add_argument("--no-drafts", action="store_true", help="guess no tokens")
    parser.add_argument("-t", "--threads", type=int, default=2, help="default 2")
    args = parser.parse_args()
    args.path = resolve_model(args.model)
    return args


def main() -> None:
    """Command line."""
    args = parse_arguments()
    drafts = SpeculationConfig(proposers=()) if args.no_drafts else SpeculationConfig()
    core = load_core(args.path, ModelOptions(n_ctx=N_CTX, pool_tokens=max(args.streams) * N_CTX,
                                             n_threads=args.threads, speculation=drafts))
    client = EngineClient(core)
    print(f"{machine()}; ggpy {commit()}; {args.path.name}, {args.threads} threads\n")
    print("| streams | steps | rows a step | between passes [ms] | a pass [ms] |\n|---:|---:|---:|---:|---:|")
    results = []
    for n_streams in args.streams:
        pairs = measure(core, client, n_streams, args.steps)
        rows = statistics.mean(b.n_rows for _, b in pairs)
        between = summary([b.begin_s - a.end_s for a, b in pairs])
        passes = summary([b.end_s - b.begin_s for _, b in pairs])
        print(f"| {n_streams} | {len(pairs)} | {rows:.1f} | {between['p50']:.3f} ({between['p90']:.3f}) | "
              f"{passes['p50']:.2f} ({passes['p90']:.2f}) |", flush=True)
        results.append({"streams": n_streams, "steps": len(pairs), "rows": round(rows, 2), "between_ms": between,
                        "pass_ms": passes})
    client.close()
    print(json.dumps({"bench": "step_time", "machine": machine(), "commit": commit(), "model": args.path.name,
                      "threads": args.threads, "drafts": not args.no_drafts, "results": results}))


if __name__ == "__main__":
    main()
