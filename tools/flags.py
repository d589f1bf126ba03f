"""Flags that several commands share, with llama.cpp's names, and what they mean to the library."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ggpy.engine.config import SamplingParams

# field of SamplingParams: flags, type of the value
SAMPLING_FLAGS: dict[str, tuple[tuple[str, ...], type]] = {
    "temperature": (("--temp", "--temperature"), float),
    "top_k": (("--top-k",), int),
    "top_p": (("--top-p",), float),
    "min_p": (("--min-p",), float),
    "repeat_penalty": (("--repeat-penalty",), float),
    "repeat_last_n": (("--repeat-last-n",), int),
    "presence_penalty": (("--presence-penalty",), float),
    "frequency_penalty": (("--frequency-penalty",), float),
    "seed": (("-s", "--seed"), int),
    "max_tokens": (("-n", "--predict", "--n-predict"), int),
}
SAMPLING_HELP = {
    "temperature": "0 always takes the most probable token",
    "top_k": "only the k most probable tokens; 0: all",
    "top_p": "only the most probable tokens that add up to p; 1: all",
    "min_p": "only tokens at least p times as probable as the best; 0: all",
    "repeat_penalty": "divides the logits of tokens that have occurred; 1: off",
    "repeat_last_n": "how many of the last tokens the penalties look at; -1: all",
    "presence_penalty": "taken off the logits of tokens that have occurred",
    "frequency_penalty": "the same, for each time that they have occurred",
    "seed": "of the random numbers; -1: another one each time",
    "max_tokens": "tokens to generate; -1: until the model ends or the context is full",
}
# a model file may say how it wants to be sampled; flags come first
SAMPLING_KEYS = {
    "temperature": "general.sampling.temp", "top_k": "general.sampling.top_k", "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p", "repeat_penalty": "general.sampling.penalty_repeat",
    "repeat_last_n": "general.sampling.penalty_last_n",
}
# a negative number is llama.cpp's way to say None, or off
NONE_IF_NEGATIVE = ("repeat_last_n", "seed", "max_tokens")
ZERO_IF_NEGATIVE = ("temperature", "top_k")


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """How tokens are chosen and where an answer ends."""
    group = parser.add_argument_group("sampling")
    defaults = SamplingParams()
    for name, (flags, kind) in SAMPLING_FLAGS.items():
        default = getattr(defaults, name)
        group.add_argument(*flags, dest=name, type=kind, metavar="N",
                           help=f"{SAMPLING_HELP[name]} (default: {-1 if default is None else default})")
    group.add_argument("--ignore-eos", action="store_true", help="never choose a token that ends the answer")
    group.add_argument("-r", "--reverse-prompt", dest="stop", action="append", metavar="TEXT",
                       help="end the answer before this text; may be repeated")


def sampling_params(args: argparse.Namespace, metadata: Mapping[str, Any]) -> SamplingParams:
    """The flags' values, else those that the model file asks for, else the defaults. Raises ConfigError."""
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(SamplingParams)):
        value = getattr(args, name)
        if value is None and name in SAMPLING_KEYS:
            value = metadata.get(SAMPLING_KEYS[name])
        if value is not None and name in NONE_IF_NEGATIVE:
            value = value if value >= 0 else None
        elif value is None:
            continue
        values[name] = max(0, value) if name in ZERO_IF_NEGATIVE else value
    return SamplingParams(**values)


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """How the model is loaded and run."""
    group = parser.add_argument_group("model")
    group.add_argument("-c", "--ctx-size", type=int, default=0, metavar="N",
                       help="tokens that a conversation may hold; 0: the model's, at most 4096 (default: 0)")
    group.add_argument("-t", "--threads", type=int, default=-1, metavar="N",
                       help="threads; -1: one for each physical core that may be used (default: -1)")
    group.add_argument("-b", "--batch-size", type=int, default=2048, metavar="N",
                       help="tokens of one step; the smaller of this and -ub counts (default: 2048)")
    group.add_argument("-ub", "--ubatch-size", type=int, default=512, metavar="N", help="see -b (default: 512)")
    group.add_argument("--repack", choices=("auto", "on", "off"), default="auto",
                       help="off: read weights where the file has them, which saves memory (default: auto)")
    group.add_argument("--compute", choices=("int8", "f32"), default="int8",
                       help="arithmetic of the products; f32 is exact and slow (default: int8)")
    group.add_argument("-ctk", "--cache-type-k", "-ctv", "--cache-type-v", dest="kv_type", choices=("f16", "f32"),
                       default="f16", help="type of keys and values in memory (default: f16)")


def model_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of LLM."""
    return {
        "n_ctx": args.ctx_size or None, "n_threads": None if args.threads < 0 else args.threads,
        "max_batch_tokens": min(args.batch_size, args.ubatch_size), "repack": args.repack, "compute": args.compute,
        "kv_type": args.kv_type,
    }
