"""`ggpy bench serve`: latency and throughput of many requests, of an engine or a server."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ggpy.errors import GgpyError, RequestError
from ggpy.tools.flags import add_model_flags, model_options, positive_number, whole_number
from ggpy.tools.parser import Parser

if TYPE_CHECKING:
    from ggpy.tools.bench_serve_load import Progress
    from ggpy.tools.bench_serve_plan import PlannedRequest
    from ggpy.tools.bench_serve_stats import Goals, Summary
    from ggpy.tools.bench_serve_targets import Target

logger = logging.getLogger("ggpy")

DESCRIPTION = """\
Measure latency and throughput of many requests.

MODEL is loaded into a process of its own, as a server does; with --url, a
server is measured instead.
Prompts are common words, answers are of a fixed length and the most probable
tokens. The workloads, always the same for a seed:

  chat     questions and answers of ShareGPT's lengths, nothing shared
  shared   prompts that begin alike in groups
  agent    sessions with long system prompts, small steps, a few large reads
           and forks; each turn continues the answer before it
  edit     answers that repeat the prompt, where the model does so"""
EXAMPLES = """\
examples:
  ggpy bench serve smollm2                              8 clients, 32 chats
  ggpy bench serve smollm2 --workload agent -n 50 -c 8192
  ggpy bench serve smollm2 --rate 0.5,1,2,4 --plot latency.svg
  ggpy bench serve --url http://127.0.0.1:8080 --workload agent
  ggpy bench serve smollm2 --trace recorded.jsonl --time-scale 0.1"""

WORKLOAD_NAMES = ("chat", "shared", "agent", "edit")
APIS = ("llama", "openai")
WARM_UP_SEED, N_WARM_UP = 10**6, 4      # its prompts are not those of the run


def add_arguments(parser: Parser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a name that `ggpy list` shows, or a GGUF file")
    _add_target_flags(parser.add_argument_group("server"))
    _add_workload_flags(parser.add_argument_group("workload"))
    _add_load_flags(parser.add_argument_group("load"))
    _add_output_flags(parser.add_argument_group("output"))
    add_model_flags(parser)


def _add_target_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--url", metavar="URL", help="measure the server there")
    group.add_argument("--api", choices=APIS, default="llama",
                       help="how to ask it: llama, llama-server's /completion, or openai, /v1/completions (default: "
                       "llama)")
    group.add_argument("--served-model", default="default", metavar="NAME", help="what the model is called there")
    group.add_argument("--api-key", metavar="KEY", help="sent as a bearer token")


def _add_workload_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--workload", choices=WORKLOAD_NAMES, default="chat", help="see above (default: chat)")
    group.add_argument("-n", "--n-requests", type=whole_number(1), default=32, metavar="N",
                       help="requests, or sessions of agents (default: 32)")
    group.add_argument("--scale", type=positive_number, default=1.0, metavar="X",
                       help="makes all texts so many times as long")
    group.add_argument("-s", "--seed", type=whole_number(0), default=0, metavar="N",
                       help="of the workload (default: 0)")
    group.add_argument("--trace", type=Path, metavar="FILE",
                       help="send what FILE has instead, JSON lines in Mooncake's format, at its times unless "
                       "--clients is given")
    group.add_argument("--write-trace", type=Path, metavar="FILE", help="write the workload there, and send nothing")


def _add_load_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--clients", type=whole_number(1), metavar="N",
                       help="that ask again as soon as they are answered (default: 8)")
    group.add_argument("--rate", type=_rates, metavar="R,...",
                       help="sessions a second instead, at random times; of several, each is a run")
    group.add_argument("--replay", action="store_true", help="at the times of the workload instead")
    group.add_argument("--time-scale", type=positive_number, default=1.0, metavar="X",
                       help="makes these times so many times as long")
    group.add_argument("--slo-ttft", type=positive_number, metavar="MS", help="goal for the time to the first token")
    group.add_argument("--slo-tpot", type=positive_number, metavar="MS", help="goal for the time per token after it")
    group.add_argument("--slo-e2e", type=positive_number, metavar="MS", help="goal for the time of the whole answer")
    group.add_argument("--no-warmup", action="store_true", help="measure from the first request on")


def _add_output_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("-o", "--output", choices=("md", "jsonl"), default="md",
                       help="what stdout gets: a table, or a line for each run (default: md)")
    group.add_argument("--plot", type=Path, metavar="FILE", help="draw latency over throughput; needs matplotlib")
    group.add_argument("--progress", action="store_true", help="say on stderr how many requests have ended")


def _rates(text: str) -> list[float]:
    return [positive_number(part) for part in text.split(",")]


def main(args: argparse.Namespace) -> int:
    if sum(map(bool, (args.clients, args.rate, args.replay))) > 1:
        args.fail("--clients, --rate and --replay exclude each other")
    if args.write_trace is None and (args.model is None) == (args.url is None):
        args.fail("give a model or the --url of a server")
    if args.write_trace is not None:
        from ggpy.engine.recording import write_trace
        from ggpy.tools.bench_serve_plan import to_trace

        write_trace(args.write_trace, to_trace(_plan(args, args.seed)))
        return 0

    from ggpy.tools.bench_serve_output import draw, notes, require_matplotlib, table

    if args.plot is not None:
        require_matplotlib()
    summaries, lacks = asyncio.run(_measure(args, list(_runs(args))))
    if args.output == "md":
        print(table(summaries))
        for note in notes(summaries, lacks):
            print(note)
    else:
        for summary in summaries:
            print(json.dumps(summary.as_json()))
    if args.plot is not None:
        draw(summaries, args.plot)
    return 0 if all(summary.n_ok for summary in summaries) else 1


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what is sent, and how."""

    plan: list[PlannedRequest]
    n_clients: int | None       # None: at the plan's times
    load: str


def _runs(args: argparse.Namespace) -> Iterator[Run]:
    """Every run sends other prompts, so that none finds those of an earlier one cached."""
    from ggpy.tools.bench_serve_plan import with_rate

    for i, rate in enumerate(args.rate or ()):
        seed = args.seed + i
        yield Run(with_rate(_plan(args, seed), rate, seed), None, f"{rate:g} sessions/s")
    if args.replay or (args.trace is not None and args.clients is None and not args.rate):
        yield Run(_plan(args, args.seed), None, f"times x {args.time_scale:g}")
    elif not args.rate:
        n_clients = args.clients or 8
        yield Run(_plan(args, args.seed), n_clients, f"{n_clients} clients")


def _plan(args: argparse.Namespace, seed: int) -> list[PlannedRequest]:
    from ggpy.engine.recording import read_trace
    from ggpy.tools.bench_serve_plan import from_trace
    from ggpy.tools.bench_serve_workloads import WORKLOADS, Size

    if args.trace is None:
        return WORKLOADS[args.workload](Size(args.n_requests, args.scale, seed))
    plan = from_trace(read_trace(args.trace), seed)
    if not plan:
        raise RequestError(f"{args.trace}: there are no requests")
    return plan


async def _measure(args: argparse.Namespace, runs: Sequence[Run]) -> tuple[list[Summary], Sequence[str]]:
    """The figures of all runs, and what the target does not tell."""
    async with _target(args) as target:
        words = await target.words()
        n_ctx = await target.n_ctx()
        if not args.no_warmup:
            await warm_up(target, words)
        summaries = [await measure(run, target, words, n_ctx=n_ctx, goals=_goals(args), time_scale=args.time_scale,
                                   pool_tokens=args.pool_tokens or None,
                                   progress=_say if args.progress else say_nothing)
                     for run in runs]
    return summaries, target.lacks


def say_nothing(done: int, total: int) -> None:
    """The progress of a run that nobody watches."""


async def measure(run: Run, target: Target, words: Sequence[int], *, n_ctx: int | None = None,
                  goals: Goals | None = None, pool_tokens: int | None = None, time_scale: float = 1.0,
                  progress: Progress = say_nothing) -> Summary:
    """The figures of one run. Raises RequestError if no request fits a context of `n_ctx` tokens."""
    from ggpy.tools.bench_serve_load import run_closed, run_open
    from ggpy.tools.bench_serve_plan import cut_to
    from ggpy.tools.bench_serve_stats import summarise

    plan = run.plan if n_ctx is None else cut_to(run.plan, n_ctx)
    if not plan:
        raise RequestError(f"no request fits the context of {n_ctx} tokens; choose a larger one (-c), or --scale")
    if len(plan) < len(run.plan):
        logger.warning("%d of %d requests do not fit the context of %d tokens and were left out",
                       len(run.plan) - len(plan), len(run.plan), n_ctx)
    before = await target.n_preempted()
    if run.n_clients is not None:
        records = await run_closed(plan, target, words, run.n_clients, progress)
    else:
        records = await run_open(plan, target, words, time_scale, progress)
    after = await target.n_preempted()
    return summarise(records, target=target.name, load=run.load, goals=goals, pool_tokens=pool_tokens,
                     n_preempted=None if before is None or after is None else after - before)


async def warm_up(target: Target, words: Sequence[int]) -> None:
    """A few short requests side by side, which are not measured."""
    from ggpy.tools.bench_serve_load import run_closed
    from ggpy.tools.bench_serve_workloads import Size, chat

    records = await run_closed(chat(Size(N_WARM_UP, 0.05, WARM_UP_SEED)), target, words, N_WARM_UP)
    if not any(record.is_ok for record in records):
        raise GgpyError(f"{target.name} answers nothing: {records[0].answer.message}")


@asynccontextmanager
async def _target(args: argparse.Namespace) -> AsyncIterator[Target]:
    """What is measured; a model that was loaded for it is freed at the end."""
    from ggpy.loading import ModelOptions
    from ggpy.tools.bench_serve_engine import open_engine
    from ggpy.tools.bench_serve_targets import LlamaServer, OpenAIServer

    if args.url is None:
        async with open_engine(args.model, ModelOptions(**model_options(args))) as engine:
            yield engine
    elif args.api == "llama":
        async with LlamaServer(args.url, api_key=args.api_key) as server:
            yield server
    else:
        async with OpenAIServer(args.url, api_key=args.api_key, model=args.served_model) as openai:
            yield openai


def _goals(args: argparse.Namespace) -> Goals | None:
    from ggpy.tools.bench_serve_stats import Goals

    limits = (args.slo_ttft, args.slo_tpot, args.slo_e2e)
    return None if limits == (None, None, None) else Goals(*limits)


def _say(done: int, total: int) -> None:
    print(f"ggpy bench serve: {done} of {total} requests", file=sys.stderr, flush=True)
