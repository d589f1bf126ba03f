"""What does HTTP cost? The engine's speed with 16 streams through `ggpy serve` and without it, and cached prompts.

`python bench/server_overhead.py [MODEL]`: a catalogue name or a path, smollm2 by default. First 16 clients with chats
of their own, the engine alone and then through the server's APIs; what HTTP, JSON and server-sent events cost is what
is missing to the engine's tokens a second. Then the time to the first token of a prompt of 1,000 tokens that the cache
has but for the last one: one after the other, and 16 at a time.

The client shares the processor with both, and parses every event. Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.environment import commit, machine
from bench.llama_server import running
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions
from ggpy.tools.bench_serve import Run, measure, warm_up
from ggpy.tools.bench_serve_engine import open_engine
from ggpy.tools.bench_serve_load import run_closed
from ggpy.tools.bench_serve_plan import PlannedRequest, random_symbols
from ggpy.tools.bench_serve_stats import quantiles, ttft_ms
from ggpy.tools.bench_serve_targets import LlamaServer, OpenAIServer, Target

N_STREAMS = 16
N_PROMPT, N_ANSWER = 32, 200        # tokens of a chat: what HTTP costs shows in answers
N_ROUNDS = 3                        # chats of each client
N_CACHED, N_PROBES = 1000, 10       # tokens of the cached prompt; requests of each client
N_CTX = N_CACHED + 64


def chats(n: int, seed: int) -> list[PlannedRequest]:
    """`n` chats, each with words of its own."""
    return [PlannedRequest(random_symbols(N_PROMPT, seed, i), N_ANSWER, session=i) for i in range(n)]


async def throughput(target: Target, words: Sequence[int], seed: int) -> float:
    """Output tokens a second of N_STREAMS clients."""
    run = Run(chats(N_ROUNDS * N_STREAMS, seed), N_STREAMS, f"{N_STREAMS} clients")
    summary = await measure(run, target, words)
    if summary.n_ok != summary.n_requests:
        raise SystemExit(f"{target.name}: {summary.problems}")
    return summary.output_tokens_per_s


async def first_token_ms(target: Target, words: Sequence[int], n_clients: int) -> dict[str, float]:
    """Quantiles of the time to the first token of a prompt that is cached."""
    prompt = random_symbols(N_CACHED, 99)
    await run_closed([PlannedRequest(prompt, 1, session=0)], target, words, 1)
    probes = [PlannedRequest(prompt, 1, session=i) for i in range(N_PROBES * n_clients)]
    records = await run_closed(probes, target, words, n_clients)
    found = quantiles([ttft_ms(record) for record in records if record.is_ok])
    if found is None:
        raise SystemExit(f"{target.name} answers nothing: {records[0].answer.message}")
    return found


@asynccontextmanager
async def targets(model: Path, n_threads: int, which: str) -> AsyncIterator[Target]:
    """The engine or one of the server's APIs, freshly started, with room for everything."""
    pool = 2 * N_STREAMS * N_CTX
    if which == "engine":
        async with open_engine(str(model), ModelOptions(n_ctx=N_CTX, pool_tokens=pool, n_threads=n_threads)) as engine:
            yield engine
        return
    flags = ["-np", str(N_STREAMS), "--kv-unified", "-c", str(N_CTX), "--pool-tokens", str(pool), "-t", str(n_threads)]
    api = LlamaServer if which == "/completion" else OpenAIServer
    async with running([sys.executable, "-P", "-m", "ggpy", "serve"], model, flags) as url, api(url, which) as server:
        yield server


async def compare(model: Path, n_threads: int) -> dict[str, object]:
    """Measures all, and prints the tables."""
    speeds: dict[str, list[float]] = {}
    latencies: dict[str, dict[str, dict[str, float]]] = {}
    words: Sequence[int] = ()
    for seed in range(2):
        for which in ("engine", "/completion", "/v1/completions"):
            async with targets(model, n_threads, which) as target:
                words = words or await target.words()
                await warm_up(target, words)
                speeds.setdefault(which, []).append(await throughput(target, words, seed))
                latencies[which] = {"alone": await first_token_ms(target, words, 1),
                                    f"{N_STREAMS} at a time": await first_token_ms(target, words, N_STREAMS)}
    print("| through | output [tok/s] | of the engine's [%] |\n|---|---:|---:|")
    means = {which: float(np.mean(values)) for which, values in speeds.items()}
    for which, mean in means.items():
        print(f"| {which} | {mean:.1f} | {100 * mean / means['engine']:.1f} |")
    print("\n| first token of a cached prompt through | clients | p50 [ms] | p99 [ms] |\n|---|---|---:|---:|")
    for which, by_load in latencies.items():
        for load, found in by_load.items():
            print(f"| {which} | {load} | {found['p50']:.1f} | {found['p99']:.1f} |")
    return {"tokens_per_s": speeds, "ttft_ms": latencies}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=2, help="of the engine (default 2)")
    args = parser.parse_args()
    path = resolve_model(args.model)
    print(f"{machine()}; ggpy {commit()}; {path.name}, {args.threads} threads\n")
    results = asyncio.run(compare(path, args.threads))
    print(json.dumps({"bench": "server_overhead", "machine": machine(), "commit": commit(), "model": path.name,
                      "threads": args.threads, **results}))


if __name__ == "__main__":
    main()
