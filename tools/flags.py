"""Flags that several commands share, with llama.cpp's names, and what they mean to the library."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple

from ggpy.engine.config import SamplingParams, sampler_name, samplers_of_letters
from ggpy.errors import ConfigError, GGUFError
from ggpy.gguf import Metadata

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescape(text: str) -> str:
    """`text` with \\n, \\r, \\t, \\', \\" and \\\\ replaced by what they stand for, as llama.cpp does in prompts."""
    return re.sub(r"\\([nrt'\"\\])", lambda match: ESCAPES[match[1]], text)


def _sampler_names(text: str) -> tuple[str, ...]:
    return tuple(map(sampler_name, filter(None, text.split(";"))))


def _bias(text: str) -> tuple[int, float]:
    """The token and the bias of "15043+1", "15043-1" or "15043-inf"."""
    match = re.fullmatch(r"(\d+)([+-].+)", text)
    if match is None:
        raise ValueError(text)
    return int(match[1]), float(match[2])


class Flag(NamedTuple):
    """The flags of a field of SamplingParams; a list's may be repeated."""

    flags: tuple[str, ...]
    type: Callable[[str], Any]
    help: str
    metavar: str = "N"
    is_list: bool = False


SAMPLING_FLAGS = {
    "samplers": Flag(("--samplers",), _sampler_names, "what is applied, in this order, separated by ;", "NAMES"),
    "min_keep": Flag(("--min-keep",), int, "tokens that top-p, min-p, typical and xtc leave at least"),
    "temperature": Flag(("--temp", "--temperature"), float, "0 always takes the most probable token"),
    "dynatemp_range": Flag(("--dynatemp-range",), float, "how far the temperature follows the entropy; 0: fixed"),
    "dynatemp_exponent": Flag(("--dynatemp-exp",), float, "how the entropy becomes a place in that range"),
    "top_k": Flag(("--top-k",), int, "only the k most probable tokens; 0: all"),
    "top_p": Flag(("--top-p",), float, "only the most probable tokens that add up to p; 1: all"),
    "min_p": Flag(("--min-p",), float, "only tokens at least p times as probable as the best; 0: all"),
    "typical_p": Flag(("--typical", "--typical-p"), float,
                      "only tokens of nearly average information that add up to p; 1: all"),
    "top_n_sigma": Flag(("--top-nsigma", "--top-n-sigma"), float,
                        "only logits within n standard deviations of the best; 0 or less: all"),
    "xtc_probability": Flag(("--xtc-probability",), float,
                            "chance that all tokens above the threshold go, but the last; 0: off"),
    "xtc_threshold": Flag(("--xtc-threshold",), float, "above 0.5: off"),
    "repeat_penalty": Flag(("--repeat-penalty",), float, "divides the logits of tokens that have occurred; 1: off"),
    "repeat_last_n": Flag(("--repeat-last-n",), int, "how many of the last tokens the penalties look at; -1: all"),
    "presence_penalty": Flag(("--presence-penalty",), float, "taken off the logits of tokens that have occurred"),
    "frequency_penalty": Flag(("--frequency-penalty",), float, "the same, for each time that they have occurred"),
    "dry_multiplier": Flag(("--dry-multiplier",), float, "of the penalty on going on with a repetition; 0: off"),
    "dry_base": Flag(("--dry-base",), float, "it grows by this for each token of the repetition"),
    "dry_allowed_length": Flag(("--dry-allowed-length",), int, "shorter repetitions are free"),
    "dry_penalty_last_n": Flag(("--dry-penalty-last-n",), int, "how many of the last tokens DRY looks at; -1: all"),
    "dry_sequence_breakers": Flag(("--dry-sequence-breaker",), unescape, "a repetition does not reach across this "
                                  "text; the first takes the place of the default ones, none: no text does", "TEXT",
                                  is_list=True),
    "mirostat": Flag(("--mirostat",), int, "1 or 2: Mirostat of that version, in place of the samplers"),
    "mirostat_eta": Flag(("--mirostat-lr",), float, "how fast Mirostat learns"),
    "mirostat_tau": Flag(("--mirostat-ent",), float, "the surprise in bits that Mirostat aims at"),
    "adaptive_target": Flag(("--adaptive-target",), float,
                            "the probability that sampler adaptive_p prefers; negative: none"),
    "adaptive_decay": Flag(("--adaptive-decay",), float, "adaptive_p remembers 1 / (1 - decay) tokens"),
    "logit_bias": Flag(("-l", "--logit-bias"), _bias, "added to the logit of a token: 15043+1, 15043-inf", "TOKEN+BIAS",
                       is_list=True),
    "seed": Flag(("-s", "--seed"), int, "of the random numbers; -1: another one each time"),
    "max_tokens": Flag(("-n", "--predict", "--n-predict"), int,
                       "tokens to generate; -1: until the model ends or the context is full"),
    "stop": Flag(("-r", "--reverse-prompt"), str, "end the answer before this text", "TEXT", is_list=True),
}
# a model file may say how it wants to be sampled; flags come first
SAMPLING_KEYS = {
    "samplers": "general.sampling.sequence", "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k", "top_p": "general.sampling.top_p", "min_p": "general.sampling.min_p",
    "xtc_probability": "general.sampling.xtc_probability", "xtc_threshold": "general.sampling.xtc_threshold",
    "repeat_penalty": "general.sampling.penalty_repeat", "repeat_last_n": "general.sampling.penalty_last_n",
    "mirostat": "general.sampling.mirostat", "mirostat_tau": "general.sampling.mirostat_tau",
    "mirostat_eta": "general.sampling.mirostat_eta",
}
# a negative number is llama.cpp's way to say None, or off
NONE_IF_NEGATIVE = ("repeat_last_n", "dry_penalty_last_n", "seed", "max_tokens")
ZERO_IF_NEGATIVE = ("temperature", "top_k", "dynatemp_range")


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """How tokens are chosen and where an answer ends."""
    group = parser.add_argument_group("sampling")
    defaults = SamplingParams()
    for name, flag in SAMPLING_FLAGS.items():
        default = getattr(defaults, name)
        shown = ";".join(default) if name == "samplers" else -1 if default is None else default
        suffix = "; may be repeated" if flag.is_list else f" (default: {shown})"
        group.add_argument(*flag.flags, dest=name, type=_usage_error(flag.type), metavar=flag.metavar,
                           action="append" if flag.is_list else "store", help=flag.help + suffix)
    group.add_argument("--sampling-seq", "--sampler-seq", dest="samplers", type=_usage_error(samplers_of_letters),
                       metavar="LETTERS", help="as --samplers, a letter for each (default: edskypmxt)")
    group.add_argument("--ignore-eos", action="store_true", help="never choose a token that ends the answer")


def _usage_error(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """`convert`, with a ConfigError as argparse's own kind of error: the usage and exit code 2."""
    def checked(text: str) -> Any:
        try:
            return convert(text)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    checked.__name__ = convert.__name__.strip("_")      # argparse puts it into its message
    return checked


def _wish(metadata: Metadata, name: str) -> Any:
    """What the model file asks for in that field of SamplingParams; None if it does not say."""
    key, kind = SAMPLING_KEYS[name], SAMPLING_FLAGS[name].type
    if kind is int:
        return metadata.get_int(key, None)
    if kind is float:
        return metadata.get_float(key, None)
    names = metadata.get_str(key, None)
    try:
        return _sampler_names(names) if names else None
    except ConfigError as error:
        raise GGUFError(f"{metadata.path}: key {key!r}: {error}") from error


def sampling_params(args: argparse.Namespace, metadata: Metadata) -> SamplingParams:
    """The flags' values, else those that the model file asks for, else the defaults.

    Raises ConfigError for values that cannot work and GGUFError for those of the file that have a wrong type.
    """
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(SamplingParams)):
        value = getattr(args, name)
        if value is None and name in SAMPLING_KEYS:
            value = _wish(metadata, name)
        if value is not None and name in NONE_IF_NEGATIVE:
            value = value if value >= 0 else None
        elif value is None:
            continue
        # nan stays, for SamplingParams to refuse
        values[name] = 0 if name in ZERO_IF_NEGATIVE and value < 0 else value
    if (breakers := values.get("dry_sequence_breakers")) and "none" in breakers:
        values["dry_sequence_breakers"] = breakers[len(breakers) - breakers[::-1].index("none"):]
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
