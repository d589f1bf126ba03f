"""Sends mutations of sound requests to a server: each is answered or refused as its dialect does it.

By hand, for as many as wanted: `python tests/server/fuzz_dialects.py --cases 20000 --seed 7`. `test_robust_bodies.py`
sends a few of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from ggpy.engine.config import SamplingParams
from ggpy.loading import ModelOptions
from ggpy.server.run import is_own_fault
from ggpy.server.settings import ServerSettings
from tests.models.arch_data import load_roomy
from tests.server.conftest import Reply, Served
from tests.server.fuzz_bodies import SEEDS, Dialect, Seed, Sent, mutated, sound

TEMPLATE = Path(__file__).parents[1] / "data" / "templates" / "qwen3.jinja"
N_CTX = 1024
MAX_S = 30.0            # far above what any of these requests needs
KNOWN = {"prompt": "a known prompt", "n_predict": 16, "temperature": 0, "cache_prompt": False}


class Faults(logging.Handler):
    """Collects what the server logs of its own faults."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.addFilter(is_own_fault)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(self.format(record)[-1500:])

    def __enter__(self) -> Faults:
        for name in ("ggpy", "aiohttp", "asyncio"):
            logging.getLogger(name).addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("ggpy", "aiohttp", "asyncio"):
            logging.getLogger(name).removeHandler(self)


def make_served(folder: Path) -> Served:
    """A server that can do whatever one can that has a single model."""
    settings = ServerSettings(
        options=ModelOptions(n_ctx=N_CTX, n_threads=1), chat_template=TEMPLATE.read_text(encoding="utf-8"), n_slots=2,
        has_metrics=True, has_embeddings=True, slot_save_path=folder, drain_s=1,
        sampling_of=lambda _: SamplingParams(temperature=0, max_tokens=24))
    return Served(settings, load_roomy(folder, N_CTX))


def known_text(served: Served) -> str:
    """The answer to a request that is always the same."""
    text: str = served.post("/completion", KNOWN).json["content"]
    return text


def send(served: Served, sent: Sent) -> str | None:
    """What is wrong with the reply to `sent`; None if nothing is."""
    start_s = time.monotonic()
    try:
        reply = served.ask(sent.seed.method, sent.seed.path, sent.data, sent.headers)
    except (http.client.HTTPException, OSError) as error:
        return f"the connection broke: {error!r}"
    if time.monotonic() - start_s > MAX_S:
        return f"it took {time.monotonic() - start_s:.0f} s"
    return wrong_with(reply, sent.seed)


def wrong_with(reply: Reply, seed: Seed) -> str | None:
    """Why `reply` is none that a client may get."""
    if not (200 <= reply.status < 300 or 400 <= reply.status < 500 or reply.status == 501):
        return f"status {reply.status}: {reply.data[:300]!r}"
    if reply.status >= 400 and not is_error(reply.data, seed.dialect, reply.status):
        return f"no error of {seed.dialect}: {reply.status} {reply.data[:300]!r}"
    if reply.status == 200 and reply.headers.get("content-type", "").startswith("text/event-stream") \
            and not reply.data.endswith(b"\n\n"):
        return f"the stream is cut: {reply.data[-200:]!r}"
    return None


def is_error(data: bytes, dialect: Dialect, status: int) -> bool:
    """Whether `data` is an error as `dialect` has it, which says something."""
    try:
        body = json.loads(data)
    except ValueError:
        return False
    error = body.get("error") if isinstance(body, dict) else None
    if dialect == "ollama":
        return isinstance(error, str) and error != ""
    if not isinstance(error, dict) or not error.get("message") or not isinstance(error.get("type"), str):
        return False
    return body.get("type") == "error" if dialect == "anthropic" else error.get("code") == status


def fuzz(served: Served, n_cases: int, seed: int, seeds: tuple[Seed, ...] = SEEDS) -> tuple[Counter[str], list[str]]:
    """Sends `n_cases` mutations; returns how many of them were refused and not, by path, and what went wrong."""
    rng, counts, wrong = random.Random(seed), Counter[str](), list[str]()
    with Faults() as faults:
        for i in range(n_cases):
            sent = mutated(rng, seeds)
            problem = send(served, sent)
            counts[sent.seed.path] += 1
            if problem is not None or faults.found:
                wrong.append(f"case {i} of seed {seed}: {sent}: {problem}\n{''.join(faults.found)}")
                faults.found.clear()
    return counts, wrong


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=5000, metavar="N", help="mutations to send (default 5000)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the mutations (default 0)")
    parser.add_argument("--dialect", help="llama, openai, anthropic or ollama alone")
    args = parser.parse_args()
    seeds = tuple(seed for seed in SEEDS if args.dialect in (None, seed.dialect))
    with tempfile.TemporaryDirectory() as folder:
        served = make_served(Path(folder))
        try:
            known = known_text(served)
            unsound = [f"{seed.path}: {problem}" for seed in seeds if (problem := send(served, sound(seed)))]
            counts, wrong = fuzz(served, args.cases, args.seed, seeds)
            if known_text(served) != known:
                wrong.append("the known request gets another answer")
        finally:
            served.close()
    print("\n\n".join(unsound + wrong))
    print(f"{sum(counts.values()):,} cases, {len(wrong)} went wrong")
    return 1 if wrong or unsound else 0


if __name__ == "__main__":
    sys.exit(main())
