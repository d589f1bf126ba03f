"""`ggpy trace`: where the time of a model's steps goes, operation by operation."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ggpy.tools import inputs
from ggpy.tools.bench_flags import load_settings
from ggpy.tools.flags import add_load_flags, whole_number

if TYPE_CHECKING:       # what takes long to import waits until the arguments are sound
    from ggpy.backends.cpu.trace import StepTrace
    from ggpy.tools.bench_model import MeasuredModel

DEFAULT_STEPS = 16
PROGRESS_S = 2.0        # between lines about tokens that are read before
LEAST_SPAN_S = 0.05     # between the first step and the last one, by which cycles are turned into seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name that `ggpy list` shows, or a GGUF file")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("-p", "--n-prompt", type=whole_number(1), metavar="N",
                      help="trace the reading of a prompt of N tokens")
    what.add_argument("-n", "--n-gen", type=whole_number(1), metavar="N",
                      help=f"trace N steps that generate (default: {DEFAULT_STEPS})")
    parser.add_argument("-d", "--n-depth", type=whole_number(0), default=0, metavar="N",
                        help="tokens that stand before (default: 0)")
    parser.add_argument("--batch", type=whole_number(1), default=1, metavar="B",
                        help="sequences side by side (default: 1)")
    parser.add_argument("--all", action="store_true", help="a row for each operation, in order, not for each kind")
    parser.add_argument("-o", "--output", type=output_file, metavar="FILE",
                        help="write what each thread did when, as a Chrome trace: open it in ui.perfetto.dev")
    parser.add_argument("--json", action="store_true", help="print one JSON object, times in seconds")
    add_load_flags(parser.add_argument_group("model"))


def output_file(file: str) -> str:
    """As that of `ggpy run`; that the system lets nobody write there is said before anything is measured, too."""
    path = Path(inputs.output_file(file))
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise argparse.ArgumentTypeError("it cannot be written")
    return file


def main(args: argparse.Namespace) -> int:
    n_prompt = args.n_prompt or 0
    n_gen = 0 if n_prompt else args.n_gen or DEFAULT_STEPS
    settings = load_settings(args, args.model)

    from ggpy.kernels.cpu.level import current_level
    from ggpy.tools.bench_model import MeasuredModel
    from ggpy.tools.trace_report import as_json, print_profile, write_chrome_trace
    from ggpy.tools.trace_rows import cycle_of, profile

    with MeasuredModel(settings, n_ctx=args.n_depth + n_prompt + n_gen, n_sequences=args.batch) as model:
        traces, last = _record(model, args.n_depth, n_prompt, n_gen, args.batch)
        entries = model.backend.entries
    cycle_s = cycle_of([traces[0], last])
    n_tokens = (n_prompt or n_gen) * args.batch
    result = profile(entries, traces, cycle_s, n_tokens=n_tokens, each=args.all)
    what = f"reading {n_prompt:,} tokens" if n_prompt else f"generating {n_gen:,} tokens"
    of = f" of each of {args.batch} sequences" if args.batch > 1 else ""
    if args.json:
        print(json.dumps({"model": str(settings.path), "level": current_level().name, "n_threads": settings.n_threads,
                          "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": args.n_depth, "n_sequences": args.batch,
                          **as_json(result)}))
    else:
        print_profile(f"{settings.path.name}, {what}{of} after {args.n_depth:,}; {settings.n_threads} threads, "
                      f"{current_level().name}", result, in_order=args.all)
    if args.output:
        write_chrome_trace(Path(args.output), entries, traces, cycle_s)
    return 0


class Reading:
    """Says on stderr now and then how many of the tokens that stand before are read."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def __call__(self, n_read: int, n_tokens: int) -> None:
        if time.monotonic() - self._said_s >= PROGRESS_S:
            self._said_s = time.monotonic()
            print(f"{n_read:,} of {n_tokens:,} tokens read that stand before", file=sys.stderr, flush=True)


def _record(model: MeasuredModel, depth: int, n_prompt: int, n_gen: int, n_sequences: int
            ) -> tuple[list[StepTrace], StepTrace]:
    """The traces of the steps asked for, after a warm-up, and one that is far enough from the first in time."""
    model.fill(depth, n_sequences, Reading())
    if n_prompt:
        steps = list(model.prompt_steps(depth, n_prompt, range(n_sequences)))
    else:
        steps = [model.decode_step(depth + i, n_sequences) for i in range(n_gen)]
    for step in steps[:2]:
        model.backend.forward(step)
    traces = [model.backend.trace(step) for step in steps]
    elapsed_s = traces[-1].tape_s - traces[0].tape_s
    if elapsed_s >= LEAST_SPAN_S:
        return traces, traces[-1]
    time.sleep(LEAST_SPAN_S - elapsed_s)
    return traces, model.backend.trace(steps[0])
