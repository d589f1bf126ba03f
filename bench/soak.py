"""Does the server stay well? Mixed load in all dialects, with clients that leave, nonsense, and models that swap.

`python bench/soak.py [MODEL] [--minutes N]`: a catalogue name or a path, smollm2 by default, beside a tiny random
model; one is loaded at a time. Every answer is greedy and compared with that to the same request alone, before the
load. At the end nothing of the load may be left: pages, tasks, threads, descriptors, memory. `n_blocks` tells what
grows if memory does: objects, of which Python counts the blocks, or the gaps between them.

Prints a table and one line of JSON; the exit code is 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import aiohttp

from bench.environment import commit, machine
from bench.soak_load import N_SLOTS, PATHS, Case, Load, make_cases, text_of
from ggpy import config
from ggpy.hub.resolve import resolve_model
from ggpy.tools.flags import positive_number
from tests.models.arch_data import load_roomy

N_CTX = 4096
N_CLIENTS = 8
SAMPLE_S = 5.0
WARM_UP_S = 20.0        # of load that counts for the answers alone
WARM_S = 300.0          # memory is compared from here on; of a shorter run, from a third of it
WINDOW_S = 60.0         # whose median counts
MOST_GROWTH = 0.03      # of memory
QUIET_S = 30.0          # in which what the load left must go
MAX_PAUSES = 10_000     # the last ones that are kept
START_S = 600.0         # kernels may have to be compiled
TASKS_FILE = "GGPY_SOAK_TASKS"


def serve(argv: Sequence[str]) -> int:
    """`ggpy serve`, which writes what it has, and the pauses of its collector, to a file at SIGUSR1."""
    from ggpy.server import command
    from ggpy.tools.parser import Parser

    pauses, start_s = [0.0], 0.0        # of the garbage collector

    def time_pause(phase: str, _: object) -> None:
        nonlocal start_s
        if phase == "start":
            start_s = time.perf_counter()
        else:
            pauses.append(time.perf_counter() - start_s)
            del pauses[: -MAX_PAUSES]

    def tell(*_: object) -> None:
        told = {"n_tasks": len(asyncio.all_tasks()), "n_blocks": sys.getallocatedblocks(),
                "pauses_ms": [round(pause * 1e3, 1) for pause in pauses]}
        path = Path(os.environ[TASKS_FILE])
        path.with_suffix(".new").write_text(json.dumps(told), encoding="utf-8")
        path.with_suffix(".new").replace(path)

    gc.callbacks.append(time_pause)
    signal.signal(signal.SIGUSR1, tell)
    parser = Parser(prog="ggpy serve")
    command.add_arguments(parser)
    return command.main(parser.parse(list(argv)))


@dataclass(frozen=True, slots=True)
class Held:
    """What the server's process has in its hands."""

    n_tasks: int
    n_threads: int
    n_descriptors: int
    n_blocks: int           # of memory, for Python's objects
    rss_bytes: int
    n_pages: int            # of the cache, that requests hold
    n_requests: int
    pauses_ms: list[float]  # of the garbage collector

    @property
    def counts(self) -> tuple[int, ...]:
        """What must be the same before and after; threads of the pool are made when they are first needed."""
        return self.n_tasks, self.n_descriptors, self.n_pages, self.n_requests


class Served:
    """The server's process."""

    def __init__(self, process: subprocess.Popen[str], url: str, tasks: Path) -> None:
        self.process, self.url, self._tasks = process, url, tasks

    def memory(self, name: str = "VmRSS") -> int:
        """Resident bytes of the process that speaks HTTP; of RssAnon, those that are no part of a file."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        return int(re.findall(rf"{name}:\s+(\d+)", status)[0]) * 1024

    async def held(self, session: aiohttp.ClientSession, model: str) -> Held:
        """What it holds now, with `model` loaded."""
        async with session.get(f"/metrics?model={model}") as reply:
            text = await reply.text()
        pages = re.findall(r'^ggpy:kv_pages{.*use="held".*} (.*)$', text, re.MULTILINE)
        requests = re.findall(r"^llamacpp:requests_(?:processing|deferred) (.*)$", text, re.MULTILINE)
        self._tasks.unlink(missing_ok=True)
        self.process.send_signal(signal.SIGUSR1)
        while not self._tasks.exists():
            await asyncio.sleep(0.01)
        folder, told = Path(f"/proc/{self.process.pid}"), json.loads(self._tasks.read_text(encoding="utf-8"))
        return Held(told["n_tasks"], len(os.listdir(folder / "task")),
                    len(os.listdir(folder / "fd")), told["n_blocks"], self.memory(), round(sum(map(float, pages))),
                    round(sum(map(float, requests))), told["pauses_ms"])


@contextmanager
def serving(folder: Path, model: Path, log: Path) -> Iterator[Served]:
    """A server with two models and room for one; its store is in `folder`, its compiled kernels are the usual ones."""
    models, slots, home = folder / "models", folder / "slots", folder / "home"
    for path in (models, slots, home):
        path.mkdir()
    load_roomy(models, N_CTX).rename(models / "tiny.gguf")
    (models / "real.gguf").symlink_to(model.resolve())
    (home / "kernels").symlink_to(config.kernels_dir())
    flags = ["--port", "0", "--models-dir", str(models), "--models-max", "1", "--offline", "--metrics", "-c",
             str(N_CTX * N_SLOTS), "-np", str(N_SLOTS), "--slot-save-path", str(slots), "--embeddings"]
    environment = os.environ | {"GGPY_HOME": str(home), TASKS_FILE: str(folder / "tasks.json")}
    with log.open("w") as errors:
        process = subprocess.Popen([sys.executable, __file__, "--serve", *flags], stderr=errors, text=True,
                                   env=environment)
    try:
        yield Served(process, wait_address(process, log), folder / "tasks.json")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_address(process: subprocess.Popen[str], log: Path) -> str:
    end_s = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < end_s:
        if found := re.search(r"listening on (http://\S+)", log.read_text(encoding="utf-8")):
            return found[1]
        time.sleep(0.05)
    raise SystemExit(f"soak: the server does not start: {log.read_text(encoding='utf-8')[-2000:]}")


async def oracle(served: Served, cases: Sequence[Case]) -> dict[Case, str]:
    """The text of each case, asked alone."""
    found: dict[Case, str] = {}
    async with aiohttp.ClientSession(served.url, timeout=aiohttp.ClientTimeout(total=START_S)) as session:
        for case in cases:
            async with session.post(PATHS[case.kind], json=case.body(is_stream=False)) as reply:
                data = await reply.read()
            if reply.status != 200:
                raise SystemExit(f"soak: {case}: {reply.status} {data[:500]!r}")
            found[case] = text_of(case.kind, data, is_stream=False) or ""
    return found


async def settled(served: Served, model: str, before: Held | None) -> Held:
    """What the server holds when it is as `before`, or nothing changes any more."""
    async with aiohttp.ClientSession(served.url, timeout=aiohttp.ClientTimeout(total=START_S)) as session:
        end_s = time.monotonic() + QUIET_S
        held = await served.held(session, model)
        while time.monotonic() < end_s and (before is None or held.counts != before.counts):
            await asyncio.sleep(1)
            held, last = await served.held(session, model), held
            if before is None and held.counts == last.counts:
                break
        return held


Sample = tuple[float, int, int]     # seconds, resident bytes, and those that are no part of a file


async def watch(served: Served, samples: list[Sample], start_s: float) -> None:
    """Note the memory from time to time."""
    while True:
        samples.append((time.monotonic() - start_s, served.memory(), served.memory("RssAnon")))
        await asyncio.sleep(SAMPLE_S)


async def soak(served: Served, seconds: float, n_clients: int, seed: int) -> dict[str, Any]:
    """All of it; returns what came of it."""
    cases = make_cases(["real", "tiny"])
    texts = await oracle(served, cases)
    warming = Load(served.url, texts, seed + 1)
    await warming.run(n_clients, WARM_UP_S)
    before = await settled(served, "tiny", None)
    print(f"{len(cases)} cases are known; {n_clients} clients for {seconds / 60:g} minutes", file=sys.stderr)
    load = Load(served.url, texts, seed)
    samples: list[Sample] = []
    watching = asyncio.create_task(watch(served, samples, time.monotonic()))
    try:
        await load.run(n_clients, seconds)
    finally:
        watching.cancel()
    has_crashed = served.process.poll() is not None
    after = before if has_crashed else await settled(served, "tiny", before)
    again = {} if has_crashed else await oracle(served, cases)
    tally = load.tally
    tally.wrong, tally.faults = warming.tally.wrong + tally.wrong, warming.tally.faults + tally.faults
    tally.wrong += [f"{case}: {again[case]!r} behind the load" for case in again if again[case] != texts[case]]
    warm_s = min(WARM_S, seconds / 3)
    window_s = min(WINDOW_S, seconds / 6)
    warm = statistics.median(rss for at, rss, _ in samples if warm_s - window_s <= at <= warm_s + window_s)
    last = statistics.median(rss for at, rss, _ in samples if at >= seconds - window_s)
    return {"counts": dict(sorted(tally.counts.items())), "wrong": tally.wrong, "faults": tally.faults,
            "crashes": int(has_crashed), "slowest_s": round(tally.slowest_s, 1),
            "longest_collections_ms": sorted(after.pauses_ms)[-5:],
            "n_collections_above_20_ms": sum(pause > 20 for pause in after.pauses_ms),
            "before": before.counts, "after": after.counts,
            "rss_mb_by_minute": [round(rss / 1e6) for _, rss, _ in samples[:: round(60 / SAMPLE_S)]],
            "anonymous_mb_by_minute": [round(rss / 1e6) for _, _, rss in samples[:: round(60 / SAMPLE_S)]],
            "n_threads": [before.n_threads, after.n_threads], "n_blocks": [before.n_blocks, after.n_blocks],
            "rss_quiet_mb": [round(held.rss_bytes / 1e6, 1) for held in (before, after)],
            "rss_warm_mb": round(warm / 1e6, 1), "rss_end_mb": round(last / 1e6, 1), "growth": last / warm - 1}


def main(argv: Sequence[str] | None = None) -> int:
    """Command line."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["--serve"]:
        return serve(arguments[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="smollm2")
    parser.add_argument("--minutes", type=positive_number, default=30, help="of load (default 30)")
    parser.add_argument("--clients", type=int, default=N_CLIENTS, help=f"at the same time (default {N_CLIENTS})")
    parser.add_argument("--seed", type=int, default=1, help="of the load (default 1)")
    parser.add_argument("--log", type=Path, help="keep what the server says in this file")
    args = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="ggpy-soak-"))
    log = args.log or folder / "log.txt"
    try:
        with serving(folder, resolve_model(args.model), log) as served:
            found = asyncio.run(soak(served, 60 * args.minutes, args.clients, args.seed))
        text = log.read_text(encoding="utf-8")
        found["restarts"] = text.count("starts again")
        found["tracebacks"] = text.count("Traceback")
    finally:
        shutil.rmtree(folder)
    report(found)
    print(json.dumps({"benchmark": "soak", "model": args.model, "minutes": args.minutes, "clients": args.clients,
                      "commit": commit(), "machine": machine(), **found, "wrong": len(found["wrong"]),
                      "faults": len(found["faults"])}))
    return 0 if is_well(found) else 1


def is_well(found: dict[str, Any]) -> bool:
    bad = ("wrong", "faults", "crashes", "restarts", "tracebacks")
    return not any(found[name] for name in bad) and found["before"] == found["after"] and found["growth"] < MOST_GROWTH


def report(found: dict[str, Any]) -> None:
    """The table, and the first of what went wrong."""
    for name in ("wrong", "faults"):
        for text in found[name][:10]:
            print(f"{name}: {text}")
    rows = [*found["counts"].items(), ("wrong answers", len(found["wrong"])), ("faults", len(found["faults"])), *(
        (name, found[name]) for name in ("crashes", "restarts", "tracebacks", "slowest_s", "longest_collections_ms",
                                     "n_collections_above_20_ms"))]
    for name in ("rss_mb_by_minute", "anonymous_mb_by_minute", "rss_quiet_mb", "n_threads", "n_blocks"):
        rows.append((name, " ".join(map(str, found[name]))))
    for what, before, after in zip(("tasks", "descriptors", "pages held", "requests"), found["before"],
                                   found["after"], strict=True):
        rows.append((what, f"{before} -> {after}"))
    rows.append(("memory", f"{found['rss_warm_mb']} -> {found['rss_end_mb']} MB ({found['growth']:+.1%})"))
    for what, value in rows:
        print(f"{what:<22} {value!s:>36}")


if __name__ == "__main__":
    sys.exit(main())
