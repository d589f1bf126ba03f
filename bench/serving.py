"""Many requests at once: latency, throughput and cache hits beside llama-server, on this machine.

`python bench/serving.py [MODEL] [--case CASE,...] [--peer-bin DIR]`: a catalogue name or a path, smollm2 by default.
DIR holds llama-server, which is started with the same memory for keys and values and its best flags, and ended again;
without it only ours is measured. The cases:

- agent: 50 sessions of agents over 3 system prompts, 8 at a time; once with a pool that holds all, once with one of
  half the distinct tokens.
- chats: 8 clients with distinct questions.
- stall: what a running stream waits while a long prompt is read, and what that prompt's reading loses.
- edit: one client whose answers repeat the prompt.
- pressure: clients who together need twice the memory for keys and values that there is; nobody may be dropped.

Prints a table for each (a ratio above 1 means that ours is better) and one line of JSON. What an engine did
under a load is told on stderr at once, since the other one may take many minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import llama_server
from bench.choices import some_of
from bench.environment import commit, machine
from bench.stalls import Stall, measure_stall
from ggpy.backends.base import kv_bytes
from ggpy.engine.speculation import SpeculationConfig
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.loading import ModelOptions
from ggpy.models import hparams_of
from ggpy.tools.bench_serve import Run, measure, warm_up
from ggpy.tools.bench_serve_bound import Access, bound
from ggpy.tools.bench_serve_engine import open_engine
from ggpy.tools.bench_serve_output import notes, table
from ggpy.tools.bench_serve_plan import Plan, PlannedRequest, expected_answer, expected_prompts
from ggpy.tools.bench_serve_targets import LlamaServer, Target
from ggpy.tools.bench_serve_workloads import Size, agent, chat, edit
from ggpy.tools.flags import positive_number

CASES = ("agent", "chats", "stall", "edit", "pressure")
N_WARM_UP_TOKENS = 512          # room for the requests that are not measured

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Setting:
    """What both engines have: the model, threads, and memory for keys and values."""

    model: Path
    n_threads: int
    n_ctx: int              # tokens of the longest request
    pool_tokens: int

    @property
    def token_bytes(self) -> int:
        """Memory of a token's keys and values, in float16."""
        hparams = hparams_of(GGUFFile(self.model))
        return kv_bytes(hparams.k_width, "f16") + kv_bytes(hparams.v_width, "f16")


class Comparison:
    """Measures one thing with each engine, one after the other, each freshly started."""

    def __init__(self, args: argparse.Namespace, setting: Setting) -> None:
        self._args, self._setting = args, setting

    async def run(self, measured: Callable[[Target, Sequence[int]], Awaitable[T]]) -> list[T]:
        """What `measured` returns for each engine, ours first; it gets the engine and its tokens of words."""
        results = []
        for engine in (self._ours, self._theirs) if self._args.peer_bin else (self._ours,):
            async with engine() as target:
                words = await target.words()
                await warm_up(target, words)
                results.append(await measured(target, words))
        return results

    @asynccontextmanager
    async def _ours(self) -> AsyncIterator[Target]:
        s = self._setting
        drafts = SpeculationConfig(proposers=()) if self._args.no_drafts else SpeculationConfig()
        options = ModelOptions(n_ctx=s.n_ctx, pool_tokens=s.pool_tokens, n_threads=s.n_threads, speculation=drafts)
        async with open_engine(str(s.model), options) as target:
            yield target

    @asynccontextmanager
    async def _theirs(self) -> AsyncIterator[Target]:
        s = self._setting
        flags = llama_server.flags(self._args.clients, s.n_threads, s.n_ctx, s.pool_tokens, s.token_bytes)
        flags += shlex.split(self._args.peer_flags)
        print(f"llama-server {' '.join(flags)}", file=sys.stderr, flush=True)
        async with (llama_server.running([str(self._args.peer_bin / "llama-server")], s.model, flags) as url,
                    LlamaServer(url, "llama-server") as target):
            yield target


async def compare_load(args: argparse.Namespace, title: str, plan: list[PlannedRequest], n_clients: int,
                       pool_tokens: int | None = None) -> dict[str, Any]:
    """Sends `plan` to both engines with room for `pool_tokens`, by default for everything, and prints the table."""
    n_ctx = max(lengths(plan)) + 1
    unique = n_unique(plan)
    # beyond the distinct tokens: pages that are not full, and what generates at the same time
    enough = unique + n_clients * n_ctx + N_WARM_UP_TOKENS
    pool = max(enough if pool_tokens is None else pool_tokens, n_ctx)
    setting = Setting(args.path, args.threads, n_ctx, pool)

    async def measured(target: Target, words: Sequence[int]) -> tuple[Any, Sequence[str]]:
        run = Run(plan, n_clients, f"{n_clients} clients")
        summary = await measure(run, target, words, pool_tokens=pool)
        print(json.dumps({"case": title} | summary.as_json()), file=sys.stderr, flush=True)
        return summary, target.lacks

    results = await Comparison(args, setting).run(measured)
    summaries = [summary for summary, _ in results]
    print(f"\n{title}: {len(plan)} requests, {unique:,} distinct tokens, pool of {pool:,}\n")
    print(table(summaries, with_ratio=len(summaries) > 1))
    for summary, lacks in results:
        print(*notes([summary], lacks), sep="\n")
    return {"case": title, "pool_tokens": pool, "runs": [summary.as_json() for summary in summaries]}


async def compare_agents(args: argparse.Namespace) -> list[dict[str, Any]]:
    """With a pool for everything, and with one for half of it."""
    plan = agent(Size(args.sessions, args.scale, args.seed))
    pools = {"all": None, "half": n_unique(plan) // 2}
    return [await compare_load(args, f"agents, {name}", plan, args.clients, pools[name]) for name in args.pool]


async def compare_stalls(args: argparse.Namespace) -> dict[str, Any]:
    """A stream and a long prompt."""
    n_ctx = args.prompt + 64
    setting = Setting(args.path, args.threads, n_ctx, 4 * n_ctx)

    async def measured(target: Target, words: Sequence[int]) -> Stall:
        return await measure_stall(target, words, args.prompt, n_ctx, args.seed)

    stalls = await Comparison(args, setting).run(measured)
    print(f"\nA stream while {args.prompt:,} tokens are read\n")
    print("| engine | idle gap [ms] | worst gap [ms] | small up to [ms] | alone [tok/s] | beside it [tok/s] | share |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for stall in stalls:
        print(f"| {stall.target} | {stall.idle_gap_ms:.1f} | {stall.worst_gap_ms:.1f} | {stall.gap_limit_ms:.1f} | "
              f"{stall.prompt_tokens_per_s:.0f} | {stall.prompt_tokens_per_s_beside:.0f} | {stall.share:.2f} |")
    return {"case": "stall", "runs": [stall.as_json() for stall in stalls]}


async def compare(args: argparse.Namespace) -> list[dict[str, Any]]:
    """All cases that were asked for."""
    results: list[dict[str, Any]] = []
    size = Size(args.requests, args.scale, args.seed)
    for case in args.case:
        if case == "agent":
            results += await compare_agents(args)
        elif case == "stall":
            results.append(await compare_stalls(args))
        elif case == "chats":
            results.append(await compare_load(args, "chats", chat(size), args.clients))
        elif case == "pressure":
            plan = chat(size)
            pool = sum(sorted(lengths(plan))[-args.clients:]) // 2
            results.append(await compare_load(args, "pressure", plan, args.clients, pool))
        else:
            results.append(await compare_load(args, "edit", edit(Size(4, args.scale, args.seed)), 1))
    return results


def lengths(plan: Plan) -> list[int]:
    """Tokens of each prompt and its answer."""
    return [len(prompt) + request.n_output for prompt, request in zip(expected_prompts(plan), plan, strict=True)]


def n_unique(plan: Plan) -> int:
    """Distinct tokens of prompts and answers."""
    return bound(Access([*prompt.tolist(), *expected_answer(plan, i).tolist()], len(prompt))
                 for i, prompt in enumerate(expected_prompts(plan))).n_unique


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2", metavar="MODEL")
    parser.add_argument("--case", type=some_of(CASES), default=list(CASES), metavar="CASES", help="default: all")
    parser.add_argument("--peer-bin", type=Path, metavar="DIR", help="where llama-server is")
    parser.add_argument("--peer-flags", default="", metavar="FLAGS", help="further flags of llama-server, in one word")
    parser.add_argument("--no-drafts", action="store_true", help="ours without guessed tokens, as llama-server is")
    parser.add_argument("--pool", type=some_of(("all", "half")), default=["all", "half"], metavar="POOLS",
                        help="of the agents: all, half or both (default)")
    parser.add_argument("--sessions", type=int, default=50, help="of agents (default 50)")
    parser.add_argument("--requests", type=int, default=32, help="of the chats (default 32)")
    parser.add_argument("--clients", type=int, default=8, help="default 8")
    parser.add_argument("--prompt", type=int, default=8000, help="tokens of the long prompt (default 8000)")
    parser.add_argument("--scale", type=positive_number, default=0.5, metavar="X",
                        help="of all lengths but that one's (default 0.5)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-t", "--threads", type=int, default=2, help="of each engine (default 2)")
    args = parser.parse_args()
    args.path = resolve_model(args.model)
    return args


def main() -> None:
    """Command line."""
    args = parse_arguments()
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    peer = "llama-server" if args.peer_bin else "no llama-server given: ours only"
    print(f"{machine()}, load {load}; ggpy {commit()}, {peer}; {args.path.name}, {args.threads} threads")
    signal.signal(signal.SIGTERM, signal.default_int_handler)       # so that what was started is ended
    cases = asyncio.run(compare(args))
    print(json.dumps({"bench": "serving", "machine": machine(), "load": load, "commit": commit(),
                      "model": args.path.name, "threads": args.threads, "scale": args.scale, "cases": cases}))


if __name__ == "__main__":
    main()
