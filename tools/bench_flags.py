"""What `ggpy bench` and `ggpy trace` are told: lists and ranges of values as llama-bench takes them, how to load."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, get_args

from ggpy.backends.base import KVType, Repack
from ggpy.machine import usable_cores

if TYPE_CHECKING:
    from ggpy.tools.bench_model import ModelSettings

REPACK = {"0": "off", "1": "on"}        # as llama-bench spells it
MAX_VALUES = 10_000                     # of one range


def whole_numbers(text: str) -> list[int]:
    """The values of "512", "1,2,4", "1-4", "1-9+2" (steps of 2) or "1-16*2" (doubling), or a list of such."""
    return [value for part in text.split(",") for value in _range(part)]


def positive_numbers(text: str) -> list[int]:
    """The same, 0 not among them."""
    values = whole_numbers(text)
    if 0 in values:
        raise argparse.ArgumentTypeError("expected numbers of at least 1")
    return values


def _range(text: str) -> list[int]:
    match = re.fullmatch(r"(\d+)(?:-(\d+)(?:([+*])(\d+))?)?", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor a range, such as 1-4, 1-9+2 or 1-16*2")
    first, last = int(match[1]), int(match[2] or match[1])
    step = int(match[4] or 1)
    if last < first or (match[3] == "*" and (step < 2 or first < 1)) or step < 1:
        raise argparse.ArgumentTypeError(f"the range {text} never reaches its end")
    values = []
    while first <= last:
        values.append(first)
        if len(values) > MAX_VALUES:
            raise argparse.ArgumentTypeError(f"the range {text} has more than {MAX_VALUES:,} values")
        first = first * step if match[3] == "*" else first + step
    return values


def pairs(text: str) -> list[tuple[int, int]]:
    """The prompt and answer of "512,128"."""
    match = re.fullmatch(r"(\d+),(\d+)", text.replace(" ", ""))
    if match is None:
        raise argparse.ArgumentTypeError("expected two numbers, such as 512,128")
    return [(int(match[1]), int(match[2]))]


def kv_types(text: str) -> list[str]:
    """The types of "f16,f32"."""
    known = get_args(KVType)
    for value in text.split(","):
        if value not in known:
            raise argparse.ArgumentTypeError(f"expected some of {', '.join(known)}")
    return text.split(",")


def repacks(text: str) -> list[str]:
    """auto, on and off, or llama-bench's 0 and 1."""
    values = [REPACK.get(value, value) for value in text.split(",")]
    for value in values:
        if value not in get_args(Repack):
            raise argparse.ArgumentTypeError("expected some of auto, on, off, 0, 1")
    return values


def load_settings(args: argparse.Namespace, spec: str) -> ModelSettings:
    """The settings for the model `spec`, which is pulled if it is absent. Raises PullError."""
    from ggpy.hub.resolve import resolve_model
    from ggpy.tools.bench_model import ModelSettings
    from ggpy.tools.terminal import pull_progress

    n_threads = args.threads if args.threads > 0 else usable_cores()
    return ModelSettings(
        path=resolve_model(spec, progress=pull_progress), n_threads=n_threads, repack=args.repack, compute=args.compute,
        step_tokens=min(args.batch_size, args.ubatch_size), cache_type_k=args.cache_type_k,
        cache_type_v=args.cache_type_v)
