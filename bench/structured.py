"""What do constrained answers cost? Microseconds of a mask, and the tokens a second that are lost.

    python bench/structured.py [MODEL...] [-t THREADS] [--streams 1,8] [--pairs N] [-n TOKENS]

Masks: the schemas and answers are those of structured_schemas.jsonl beside this file. Each answer is read token by
token, once compact and once indented, and before each token its mask is filled, as the engine does it.

Speed: the same requests, equally many tokens each, as JSON of a schema and free, in pairs of runs of which either is
first in turns, without drafts. A run lasts from when the requests are sent, so what the schema itself takes is in it.
The loss of a pair is what is missing to the free run's tokens a second.

Prints tables and one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.environment import commit, machine
from ggpy import LLM, ConstraintSpec, SamplingParams, SpeculationConfig
from ggpy.engine.structured.constraint import Grammars
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.text import Tokenizer
from ggpy.tools.bench_flags import positive_numbers

DATA = Path(__file__).with_name("structured_schemas.jsonl")
MODELS = ("qwen2.5-coder:0.5b", "smollm2")      # vocabularies of 152,000 and 49,000
REPEATS = 5                                     # of each answer that masks are filled for
PROMPT = "Write a list of forty people with their age, town and hobbies, as JSON."
PEOPLE = ConstraintSpec("json_schema", json.dumps({     # no answer here is long enough to be all of it
    "type": "object", "required": ["people"], "additionalProperties": False, "properties": {"people": {
        "type": "array", "minItems": 40, "items": {
            "type": "object", "required": ["name", "age", "town", "hobbies"], "additionalProperties": False,
            "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
                           "town": {"type": "string"}, "hobbies": {"type": "array", "items": {"type": "string"}}}}}}}))
N_RESAMPLES = 10_000                            # of the pairs, for the interval of their median


class Pair(NamedTuple):
    """Output tokens a second of two runs, one after the other."""

    free: float
    constrained: float

    @property
    def loss(self) -> float:
        return 1 - self.constrained / self.free


def cases() -> Iterator[tuple[str, str, list[str]]]:
    """Name, schema and answers as text of each line of DATA."""
    for line in DATA.read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        yield case["name"], json.dumps(case["schema"]), [
            json.dumps(answer, indent=indent) for answer in case["answers"] for indent in (None, 2)]


def mask_times(grammars: Grammars, tokenizer: Tokenizer, schema: str, answer: str) -> list[float]:
    """Microseconds of each mask while `answer` is written."""
    constraint = grammars.start(ConstraintSpec("json_schema", schema))
    masks = np.empty((1, grammars.n_words), np.int32)
    times = []
    for token in [*tokenizer.encode(answer, add_special=False), tokenizer.eos_id]:
        assert token is not None
        start = time.perf_counter()
        constraint.fill(masks)
        times.append(1e6 * (time.perf_counter() - start))
        assert masks[0, token // 32] >> token % 32 & 1, f"{token} is not allowed in {answer}"
        constraint.accept(token)
    return times


def measure_masks(tokenizer: Tokenizer) -> dict[str, Any]:
    grammars = Grammars(tokenizer)
    start = time.perf_counter()
    grammars.start(ConstraintSpec("json"))
    vocabulary_s = time.perf_counter() - start
    every: list[float] = []
    print(f"{'schema':<14}{'compile ms':>12}{'masks':>8}{'mean us':>10}{'p99':>8}{'max':>8}")
    for name, schema, answers in cases():
        start = time.perf_counter()
        grammars.start(ConstraintSpec("json_schema", schema))
        compile_ms = 1e3 * (time.perf_counter() - start)
        times = [each for _ in range(REPEATS) for answer in answers
                 for each in mask_times(grammars, tokenizer, schema, answer)]
        every += times
        print(f"{name:<14}{compile_ms:>12.1f}{len(times):>8,}{summary(times)}", flush=True)
    print(f"{'all':<26}{len(every):>8,}{summary(every)}")
    return {"vocabulary_s": round(vocabulary_s, 2), "n_masks": len(every), "mean_us": round(statistics.mean(every), 1),
            "p99_us": round(float(np.percentile(every, 99)), 1), "max_us": round(max(every), 1)}


def summary(times: list[float]) -> str:
    return f"{statistics.mean(times):>10.1f}{np.percentile(times, 99):>8.0f}{max(times):>8.0f}"


def tokens_per_s(llm: LLM, constraint: ConstraintSpec | None, n_streams: int, n_tokens: int, seed: int) -> float:
    """Of `n_streams` answers at a time, each of `n_tokens` and with a seed of its own."""
    prompt = llm.chat_tokens([{"role": "user", "content": PROMPT}])
    start = time.perf_counter()
    streams = [llm.stream(prompt, SamplingParams(max_tokens=n_tokens, ignore_eos=True, seed=seed + i),
                          constraint=constraint) for i in range(n_streams)]
    lengths = {len(stream.finish().tokens) for stream in streams}
    seconds = time.perf_counter() - start
    if lengths != {n_tokens}:
        raise SystemExit(f"answers have {sorted(lengths)} tokens, expected {n_tokens} each")
    return n_streams * n_tokens / seconds


def measure_pairs(llm: LLM, n_streams: int, n_tokens: int, n_pairs: int) -> list[Pair]:
    """After one of each that compiles and warms up."""
    pairs = []
    for i in range(n_pairs + 1):
        speeds = {constraint: tokens_per_s(llm, constraint, n_streams, n_tokens, seed=100 * i)
                  for constraint in (None, PEOPLE)[:: 1 if i % 2 else -1]}
        pairs.append(Pair(speeds[None], speeds[PEOPLE]))
    return pairs[1:]


def measure_loss(model: Path, n_threads: int, streams: Sequence[int], n_tokens: int, n_pairs: int) -> dict[str, Any]:
    """For each number of streams: losses and speeds of the pairs, and a row of the table."""
    results: dict[str, Any] = {}
    print(f"\n{'streams':>7}{'free tok/s':>12}{'constrained':>13}{'loss %':>8}{'quartiles':>16}{'95 % interval':>18}")
    n_ctx = n_tokens + 256
    with LLM(model, n_ctx=n_ctx, pool_tokens=n_ctx * max(streams), n_threads=n_threads,
             speculation=SpeculationConfig(proposers=())) as llm:
        for n_streams in streams:
            pairs = measure_pairs(llm, n_streams, n_tokens, n_pairs)
            found = loss_percent([pair.loss for pair in pairs])
            free, constrained = (statistics.median(speeds) for speeds in zip(*pairs, strict=True))
            print(f"{n_streams:>7}{free:>12.1f}{constrained:>13.1f}{found['median']:>8.2f}"
                  f"{shown_range(found['quartiles']):>16}{shown_range(found['interval_95']):>18}", flush=True)
            results[str(n_streams)] = {"loss_percent": found, "free_tokens_per_s": round(free, 2),
                                       "constrained_tokens_per_s": round(constrained, 2)}
    return results


def loss_percent(losses: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles of `losses`, and the bootstrap's 95 % interval of the median."""
    values = 100 * np.asarray(losses)
    medians = np.median(np.random.default_rng(0).choice(values, (N_RESAMPLES, len(values))), axis=1)
    return {"n_pairs": len(values), "median": round(float(np.median(values)), 2),
            "quartiles": np.percentile(values, (25, 75)).round(2).tolist(),
            "interval_95": np.percentile(medians, (2.5, 97.5)).round(2).tolist()}


def shown_range(bounds: Sequence[float]) -> str:
    return f"{bounds[0]:.2f} to {bounds[1]:.2f}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    parser.add_argument("-t", "--threads", type=int, default=2, help="threads (default 2)")
    parser.add_argument("-n", "--tokens", type=int, default=128, help="of each answer (default 128)")
    parser.add_argument("--streams", type=positive_numbers, default=[1, 8], metavar="N,...",
                        help="answers at a time, separated by commas (default 1,8)")
    parser.add_argument("--pairs", type=int, default=21, help="pairs of runs; 0: masks alone (default 21)")
    args = parser.parse_args()
    print(f"{machine()}, {args.threads} threads; commit {commit()}; pairs of runs with {args.tokens} tokens an answer")
    results: dict[str, Any] = {}
    for model in args.models:
        path = resolve_model(model)
        tokenizer = Tokenizer.from_metadata(GGUFFile(path).metadata)
        print(f"\n{path.name}, {tokenizer.n_vocab:,} tokens\n")
        results[path.stem] = {"n_vocab": tokenizer.n_vocab, "masks": measure_masks(tokenizer)}
        if args.pairs:
            results[path.stem]["streams"] = measure_loss(path, args.threads, args.streams, args.tokens, args.pairs)
    print(json.dumps({"bench": "structured", "machine": machine(), "commit": commit(), "threads": args.threads,
                      "n_tokens": args.tokens, "models": results}))


if __name__ == "__main__":
    main()
