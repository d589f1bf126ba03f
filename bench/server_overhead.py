"""What does HTTP cost? The engine's speed with 16 streams through `ggpy serve` and without it, and cached prompts.

    python bench/server_overhead.py [MODEL] [-t THREADS] [--routes /api/chat,...] [--rounds N]

First 16 clients with chats of their own, the engine alone and then through the server's APIs, all streamed; what HTTP,
JSON and server-sent events cost is what is missing to the engine's tokens a second. Everybody reads the same tokens:
the chat APIs are sent the messages, which the server makes prompts of. Then the time to the first token of a prompt of
1,000 words that the cache has but for its last token: one after the other, and 16 at a time.

Answers have 200 tokens. Ollama's API has nothing to go on with behind a token that ends an answer, so through /api/chat
some are shorter; it is compared with an engine whose answers end there, too, which are the same ones token by token.
The client shares the processor with both, so it only notes what comes and when, and takes an answer apart when all of
it is there. Speeds are medians of the rounds: on a machine that others use, a round of either may be slow by a quarter.
Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.chat_targets import CHAT_SERVERS, MODEL, Chats, server
from bench.choices import some_of
from bench.environment import commit, machine
from bench.frugal_client import FrugalClient
from bench.llama_server import running
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions
from ggpy.tools.bench_serve_engine import open_engine
from ggpy.tools.bench_serve_load import Record
from ggpy.tools.bench_serve_stats import quantiles, summarise, ttft_ms
from ggpy.tools.bench_serve_targets import Target

ENGINE, ENDING_ENGINE = "engine", "engine, answers end"
ROUTES = ("/completion", "/v1/completions", *CHAT_SERVERS)
N_STREAMS = 16
N_WORDS, N_ANSWER = 32, 200         # of a message; tokens of an answer: what HTTP costs shows in those
N_CHATS = 3                         # of each client
N_CACHED, N_PROBES = 1000, 10       # words of the cached prompt; requests of each client
N_CTX = 2 * N_CACHED


@dataclass(slots=True)
class Figures:
    """What was measured through one API, round by round."""

    tokens_per_s: list[float] = field(default_factory=list)
    answer_tokens: list[float] = field(default_factory=list)            # mean of an answer
    ttft_ms: dict[str, dict[str, float]] = field(default_factory=dict)  # of the last round, by load: quantiles


async def send(target: Target, prompts: Sequence[list[int]], n_output: int, n_clients: int) -> list[Record]:
    """The records of `n_clients` that send `prompts` between them, each the next when it has its answer."""
    waiting, records = iter(prompts), []

    async def client() -> None:
        for prompt in waiting:
            due_s = time.perf_counter()
            answer = await target.complete(prompt, n_output)
            records.append(Record(prompt, due_s, time.perf_counter(), answer))

    await asyncio.gather(*(client() for _ in range(n_clients)))
    if bad := [record.answer.message for record in records if not record.is_ok]:
        raise SystemExit(f"{target.name}: {len(bad)} of {len(records)} requests have no answer: {bad[0]}")
    return records


async def measure(target: Target, chats: Chats, seed: int, figures: Figures) -> None:
    """Adds one round's to `figures`."""
    await send(target, [chats.prompt(N_WORDS, 1, seed, i) for i in range(N_STREAMS)], 16, N_STREAMS)    # warms up
    prompts = [chats.prompt(N_WORDS, 2, seed, i) for i in range(N_CHATS * N_STREAMS)]
    summary = summarise(await send(target, prompts, N_ANSWER, N_STREAMS), target=target.name, load="")
    figures.tokens_per_s.append(summary.output_tokens_per_s)
    figures.answer_tokens.append(summary.n_output / summary.n_ok)
    cached = chats.prompt(N_CACHED, 3, seed)
    await send(target, [cached], 1, 1)
    for load, n_clients in (("alone", 1), (f"{N_STREAMS} at a time", N_STREAMS)):
        records = await send(target, [cached] * N_PROBES * n_clients, 1, n_clients)
        found = quantiles([ttft_ms(record) for record in records])
        assert found is not None, "every request has an answer"
        figures.ttft_ms[load] = found


@asynccontextmanager
async def opened(which: str, model: Path, chats: Chats, n_threads: int) -> AsyncIterator[Target]:
    """The engine or one of the server's APIs, freshly started, with room for everything."""
    pool = N_STREAMS * N_CTX
    if which in (ENGINE, ENDING_ENGINE):
        options = ModelOptions(n_ctx=N_CTX, pool_tokens=pool, n_threads=n_threads)
        async with open_engine(str(model), options, ignores_eos=which == ENGINE) as engine:
            yield engine
        return
    flags = ["-np", str(N_STREAMS), "--kv-unified", "-c", str(N_CTX), "--pool-tokens", str(pool), "-t", str(n_threads),
             "-a", MODEL]
    async with (running([sys.executable, "-P", "-m", "ggpy", "serve"], model, flags) as url,
                server(which, url, chats) as target):
        yield FrugalClient(target)


def engine_for(which: str) -> str:
    """The engine that `which` is compared with."""
    return ENDING_ENGINE if which in ("/api/chat", ENDING_ENGINE) else ENGINE


async def compare(model: Path, n_threads: int, routes: Sequence[str], n_rounds: int) -> dict[str, Figures]:
    """Measures all; every round has other chats."""
    chats = Chats(model)
    figures = {which: Figures() for which in dict.fromkeys([*map(engine_for, routes), *routes])}
    for seed in range(n_rounds):
        for which, found in figures.items():
            async with opened(which, model, chats, n_threads) as target:
                await measure(target, chats, seed, found)
    return figures


def print_tables(figures: dict[str, Figures]) -> None:
    print("| through | output [tok/s] | of the engine's [%] | tokens an answer |\n|---|---:|---:|---:|")
    for which, found in figures.items():
        engine = statistics.median(figures[engine_for(which)].tokens_per_s)
        speed = statistics.median(found.tokens_per_s)
        print(f"| {which} | {speed:.1f} | {100 * speed / engine:.1f} "
              f"| {statistics.mean(found.answer_tokens):.0f} |")
    print("\n| first token of a cached prompt through | clients | p50 [ms] | p99 [ms] |\n|---|---|---:|---:|")
    for which, found in figures.items():
        for load, times in found.ttft_ms.items():
            print(f"| {which} | {load} | {times['p50']:.1f} | {times['p99']:.1f} |")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", metavar="MODEL")
    parser.add_argument("-t", "--threads", type=int, default=2, help="of the engine (default 2)")
    parser.add_argument("--routes", type=some_of(list(ROUTES)), default=list(ROUTES), metavar="ROUTES",
                        help="separated by commas (default: all of them)")
    parser.add_argument("--rounds", type=int, default=3, help="through everything (default 3)")
    args = parser.parse_args()
    path = resolve_model(args.model)
    print(f"{machine()}; ggpy {commit()}; {path.name}, {args.threads} threads\n")
    figures = asyncio.run(compare(path, args.threads, args.routes, args.rounds))
    print_tables(figures)
    results: dict[str, dict[str, Any]] = {
        "tokens_per_s": {which: found.tokens_per_s for which, found in figures.items()},
        "answer_tokens": {which: found.answer_tokens for which, found in figures.items()},
        "ttft_ms": {which: found.ttft_ms for which, found in figures.items()}}
    print(json.dumps({"bench": "server_overhead", "machine": machine(), "commit": commit(), "model": path.name,
                      "threads": args.threads, **results}))


if __name__ == "__main__":
    main()
