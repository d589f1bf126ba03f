"""`ggpy bench`: the speed of models, with llama-bench's flags, tests and outputs.

A test is timed over passes of the backend alone: tokens are random, none is chosen, no text is made.
"""

from __future__ import annotations

import argparse
import itertools
import logging
import math
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, get_args

from ggpy.backends.base import Compute, KVType
from ggpy.hub import names
from ggpy.machine import usable_cores
from ggpy.tools.bench_flags import kv_types, pairs, positive_numbers, repacks, whole_numbers
from ggpy.tools.bench_output import FORMATS, BatchedMarkdown, Markdown, Printer
from ggpy.tools.flags import positive_number, whole_number

if TYPE_CHECKING:
    from ggpy.tools.bench_tests import BatchedTest, Test

logger = logging.getLogger("ggpy")

MAX_DELAY_S = 86400     # a day

# of llama-bench, each with a value; there is nothing that they could change here
IGNORED = (("-ngl", "--n-gpu-layers"), ("-fa", "--flash-attn"), ("-mmp", "--mmap"), ("-dio", "--direct-io"),
           ("-lm", "--load-mode"), ("-lzm", "--lazy-mode"), ("-sm", "--split-mode"), ("-mg", "--main-gpu"),
           ("-ts", "--tensor-split"), ("-nkvo", "--no-kv-offload"), ("-embd", "--embeddings"),
           ("-nopo", "--no-op-offload"), ("--no-host",), ("-ncmoe", "--n-cpu-moe"), ("-ot", "--override-tensor"),
           ("-dev", "--device"), ("-C", "--cpu-mask"), ("--cpu-strict",), ("--poll",), ("--prio",), ("--numa",),
           ("-fitt", "--fit-target"), ("-fitc", "--fit-ctx"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("models", nargs="*", metavar="MODEL", help="names that `ggpy list` shows, or GGUF files")
    parser.add_argument("-m", "--model", action="append", default=[], metavar="FILES",
                        help="the same, separated by commas; as all that follow, may be repeated")
    parser.add_argument("-hf", "-hfr", "--hf-repo", action="append", default=[], type=names.hub_name,
                        metavar="user/repo[:QUANT]", help="a model of Hugging Face")
    _add_tests(parser)
    _add_settings(parser)
    output = parser.add_argument_group("output")
    output.add_argument("-o", "--output", choices=FORMATS, default="md", help="what stdout gets (default: md)")
    output.add_argument("-oe", "--output-err", choices=FORMATS, help="what stderr gets too")
    output.add_argument("--progress", action="store_true", help="say on stderr what is being measured")
    ignored = parser.add_argument_group("accepted for llama-bench's sake, without effect")
    for flags in IGNORED:
        ignored.add_argument(*flags, dest=f"ignored {flags[0]}", metavar="X", help=argparse.SUPPRESS)
    parser.set_defaults(fail=parser.error)


def _add_tests(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "tests", "Values may be lists (1,2,4) and ranges (1-4, 1-9+2, 1-16*2);\n"
                 "every combination is measured.")
    numbers: dict[str, Any] = {"action": "append", "type": whole_numbers, "metavar": "N"}
    group.add_argument("-p", "--n-prompt", "-npp", **numbers, help="read N tokens; 0: no such test (default: 512)")
    group.add_argument("-n", "--n-gen", "-ntg", **numbers, help="generate N tokens; 0: no such test (default: 128)")
    group.add_argument("-pg", action="append", type=pairs, metavar="PP,TG", help="read, then generate")
    group.add_argument("-d", "--n-depth", **numbers, help="tokens that stand before those of a test (default: 0)")
    group.add_argument("-npl", "--n-parallel", action="append", type=positive_numbers, metavar="N",
                       help="as llama-batched-bench: N sequences read -p tokens each, then generate -n")
    group.add_argument("-r", "--repetitions", type=whole_number(1), default=5, metavar="N",
                       help="of each test (default: 5)")
    group.add_argument("--delay", type=_delay, default=0, metavar="S", help="seconds between tests (default: 0)")
    group.add_argument("--no-warmup", action="store_true", help="measure from the first pass on")
    group.add_argument("--bandwidth", type=positive_number, metavar="GB/S",
                       help="how fast memory is read, for the roofline; without it this is measured beside each run")


def _delay(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_DELAY_S:
        raise argparse.ArgumentTypeError(f"expected 0 to {MAX_DELAY_S} seconds")
    return value


def _add_settings(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    numbers: dict[str, Any] = {"action": "append", "type": positive_numbers, "metavar": "N"}
    group.add_argument("-t", "--threads", **numbers, help="threads (default: the physical cores that may be used)")
    group.add_argument("-b", "--batch-size", **numbers,
                       help="tokens of one step; the smaller of this and -ub counts (default: 2048)")
    group.add_argument("-ub", "--ubatch-size", **numbers, help="see -b (default: 512)")
    for letter, what in (("k", "keys"), ("v", "values")):
        group.add_argument(f"-ct{letter}", f"--cache-type-{letter}", action="append", type=kv_types, metavar="TYPE",
                           help=f"types of {what} in memory: {', '.join(get_args(KVType))} (default: f16)")
    group.add_argument("--repack", action="append", type=repacks, metavar="WHEN",
                       help="auto, on or off: weights are copied, or read where the file has them (default: auto)")
    group.add_argument("--compute", choices=get_args(Compute), default="int8",
                       help="arithmetic of the products (default: int8)")


def main(args: argparse.Namespace) -> int:
    specs = [*args.models, *(spec for text in args.model for spec in text.split(",")), *args.hf_repo]
    if not specs:
        args.fail("give a model: a name that `ggpy list` shows, or a GGUF file")
    if args.n_parallel and (args.pg or args.n_depth):
        args.fail("-npl takes -p and -n; -pg and -d are tests of one sequence")
    ignored = [name.split()[1] for name, value in vars(args).items() if name.startswith("ignored ") and value]
    if ignored:
        logger.warning("%s: ignored, there is nothing to choose here", ", ".join(ignored))
    tests = list(_tests(args, specs))
    if not tests:
        args.fail("there is nothing to measure: -p, -n and -pg are 0")

    from ggpy.tools.bench_measure import measure

    printers = [_printer(kind, stream, tests) for kind, stream in
                ((args.output, sys.stdout), (args.output_err, sys.stderr)) if kind]
    for printer in printers:
        printer.begin()
    results = measure(tests, repetitions=args.repetitions, warm_up=not args.no_warmup, bandwidth=args.bandwidth,
                      progress=_say if args.progress else _say_nothing)
    for i, (record, footer) in enumerate(results, start=1):
        for printer in printers:
            printer.add(record)
            if i == len(tests):
                printer.end(footer)
        if args.delay and i < len(tests):
            time.sleep(args.delay)
    return 0


def _tests(args: argparse.Namespace, specs: Iterable[str]) -> Iterator[Test | BatchedTest]:
    """The tests in llama-bench's order, by which a model is loaded as rarely as can be."""
    from ggpy.tools.bench_tests import BatchedTest, Test

    prompts = [n for n in _flat(args.n_prompt, [512]) if n]
    generated = [n for n in _flat(args.n_gen, [128]) if n]
    shapes = [(n, 0) for n in prompts] + [(0, n) for n in generated] + [
        pair for pair in _flat(args.pg, []) if pair != (0, 0)]
    parallel = _flat(args.n_parallel, [])
    for settings in _settings(args, specs):
        if parallel:
            for shape in itertools.product(prompts, generated, parallel):
                yield BatchedTest(**settings, n_prompt=shape[0], n_gen=shape[1], n_parallel=shape[2])
            continue
        for n_depth in _flat(args.n_depth, [0]):
            for n_prompt, n_gen in shapes:
                yield Test(**settings, n_prompt=n_prompt, n_gen=n_gen, n_depth=n_depth)


def _settings(args: argparse.Namespace, specs: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Every combination of what tests may have in common, as their keyword arguments."""
    from ggpy.hub.resolve import resolve_model
    from ggpy.tools.bench_model import ModelSettings
    from ggpy.tools.terminal import pull_progress

    paths: list[Path] = [resolve_model(spec, progress=pull_progress) for spec in specs]
    for path, n_batch, n_ubatch, type_k, type_v, repack, n_threads in itertools.product(
            paths, _flat(args.batch_size, [2048]), _flat(args.ubatch_size, [512]), _flat(args.cache_type_k, ["f16"]),
            _flat(args.cache_type_v, ["f16"]), _flat(args.repack, ["auto"]), _flat(args.threads, [usable_cores()])):
        yield {"n_batch": n_batch, "n_ubatch": n_ubatch, "settings": ModelSettings(
            path=path, n_threads=n_threads, step_tokens=min(n_batch, n_ubatch), cache_type_k=type_k,
            cache_type_v=type_v, repack=repack, compute=args.compute)}


def _flat(lists: list[list[Any]] | None, default: list[Any]) -> list[Any]:
    """The values of a flag that may be repeated, each once."""
    return default if lists is None else list(dict.fromkeys(value for values in lists for value in values))


def _printer(kind: str, stream: TextIO, tests: list[Test | BatchedTest]) -> Printer:
    if kind != "md":
        return FORMATS[kind](stream)
    return (BatchedMarkdown if hasattr(tests[0], "n_parallel") else Markdown)(stream, tests)


def _say(text: str) -> None:
    print(f"ggpy bench: {text}", file=sys.stderr, flush=True)


def _say_nothing(text: str) -> None:
    pass
