"""What does a mask of a constrained answer cost? Microseconds over realistic schemas and answers.

    python bench/structured.py [MODEL]

The schemas and answers are those of structured_schemas.jsonl beside this file. Each answer is read token by token, once
compact and once indented, and before each token its mask is filled, as the engine does it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.environment import commit, machine
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured.constraint import Grammars
from ggpy.gguf import GGUFFile
from ggpy.hub.resolve import resolve_model
from ggpy.text import Tokenizer

DATA = Path(__file__).with_name("structured_schemas.jsonl")
MODEL = "qwen2.5-coder:0.5b"            # a vocabulary of 152,000
REPEATS = 5


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=MODEL)
    args = parser.parse_args()
    path = resolve_model(args.model)
    tokenizer = Tokenizer.from_metadata(GGUFFile(path).metadata)
    result: dict[str, Any] = {"bench": "structured", "model": path.name, "n_vocab": tokenizer.n_vocab}
    print(f"{path.name}, {tokenizer.n_vocab:,} tokens; {machine()}; commit {commit()}")
    result |= measure_masks(tokenizer)
    print(json.dumps(result | {"machine": machine(), "commit": commit()}))


if __name__ == "__main__":
    main()
