"""Flags that several commands share, with llama.cpp's names, and what they mean to the library."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NamedTuple, get_args

from ggpy.backends.base import Compute, KVType, Repack
from ggpy.engine.config import (
    DEFAULT_STEP_MS,
    MAX_THREADS,
    EngineConfig,
    SamplingParams,
    sampler_name,
    samplers_of_letters,
)
from ggpy.errors import ConfigError, GGUFError
from ggpy.gguf import Metadata
from ggpy.tools.parser import KINDS

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "'": "'", '"': '"', "\\": "\\"}


def unescape(text: str) -> str:
    """`text` with \\n, \\r, \\t, \\', \\" and \\\\ replaced by what they stand for, as llama.cpp does in prompts."""
    return re.sub(r"\\([nrt'\"\\])", lambda match: ESCAPES[match[1]], text)


def _sampler_names(text: str) -> tuple[str, ...]:
    return tuple(map(sampler_name, filter(None, text.split(";"))))


def _bias(text: str) -> tuple[int, float]:
    """The token and the bias of "15043+1", "15043-1" or "15043-inf"."""
    match = re.fullmatch(r"(\d+)([+-].+)", text)
    try:
        return int(match[1]), float(match[2])       # type: ignore[index]
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError("expected a token and what is added, such as 15043+1 or 15043-inf") from error


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
    "temperature": Flag(("--temp", "--temperature"), float, "0: always the most probable token"),
    "dynatemp_range": Flag(("--dynatemp-range",), float, "how far the temperature follows the entropy; 0: fixed"),
    "dynatemp_exponent": Flag(("--dynatemp-exp",), float, "how the entropy becomes a place in that range"),
    "top_k": Flag(("--top-k",), int, "only the k most probable tokens; 0 or -1: all"),
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
                       "tokens to generate; -1 or -2: until the model ends or the context is full"),
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
# a negative number is llama.cpp's way to say None, or off; those that flags take. Model files may have others
NEGATIVE = {"repeat_last_n": (-1,), "dry_penalty_last_n": (-1,), "seed": (-1,), "max_tokens": (-1, -2), "top_k": (-1,)}
ZERO_IF_NEGATIVE = ("temperature", "top_k")


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """How tokens are chosen and where an answer ends."""
    group = parser.add_argument_group("sampling")
    defaults = SamplingParams()
    for name, flag in SAMPLING_FLAGS.items():
        default = getattr(defaults, name)
        shown = ";".join(default) if name == "samplers" else -1 if default is None else default
        suffix = "; may be repeated" if flag.is_list else f" (default: {shown})"
        group.add_argument(*flag.flags, dest=name, type=_checked(name), metavar=flag.metavar,
                           action="append" if flag.is_list else "store", help=flag.help + suffix)
    group.add_argument("--sampling-seq", "--sampler-seq", dest="samplers", type=_letters, metavar="LETTERS",
                       help="as --samplers, a letter for each (default: edskypmxt)")
    group.add_argument("--ignore-eos", action="store_true", help="never choose a token that ends the answer")


def _checked(name: str) -> Callable[[str], Any]:
    """Reads the flag's text, and refuses it, as argparse's types do, if the field of SamplingParams `name` would."""
    flag = SAMPLING_FLAGS[name]

    def read(text: str) -> Any:
        try:
            value = flag.type(text)
            if isinstance(value, float) and not math.isfinite(value):
                raise argparse.ArgumentTypeError("expected a finite number")
            param: Any = (value,) if flag.is_list else value
            if value not in NEGATIVE.get(name, ()):
                SamplingParams(**{name: param})
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"expected {KINDS[flag.type]}") from error
        except ConfigError as error:
            raise _reason(error, "".join(f", or {number}" for number in NEGATIVE.get(name, ()))) from error
        return value

    return read


def _as_param(name: str, value: Any) -> Any:
    """A flag's value as that field of SamplingParams has it."""
    if name in ZERO_IF_NEGATIVE:
        return 0 if value < 0 else value        # nan stays, for SamplingParams to refuse
    return None if name in NEGATIVE and value < 0 else value


def _letters(text: str) -> tuple[str, ...]:
    try:
        return samplers_of_letters(text)
    except ConfigError as error:
        raise _reason(error) from error


def _reason(error: ConfigError, suffix: str = "") -> argparse.ArgumentTypeError:
    """What `error` says behind the name of the setting; the parser names the flag instead."""
    return argparse.ArgumentTypeError(str(error).partition(": ")[2] + suffix)


def _wish(metadata: Metadata, name: str) -> Any:
    """What the model file asks for in that field of SamplingParams; None if it does not say."""
    key, flag = SAMPLING_KEYS[name], SAMPLING_FLAGS[name]
    readers: dict[Any, Callable[..., Any]] = {int: metadata.get_int, float: metadata.get_float}
    found = readers.get(flag.type, metadata.get_str)(key, None)
    if found in (None, ""):
        return None
    try:
        value = _sampler_names(found) if name == "samplers" else found
        SamplingParams(**{name: _as_param(name, value)})
    except ConfigError as error:
        raise GGUFError(f"{metadata.path}: key {key!r}: {error}; {flag.flags[0]} chooses another value") from error
    return value


def sampling_params(args: argparse.Namespace, metadata: Metadata) -> SamplingParams:
    """The flags' values, else those that the model file asks for, else the defaults.

    Raises ConfigError for values that cannot work and GGUFError for those of the file that have a wrong type.
    """
    values: dict[str, Any] = {}
    for name in (field.name for field in fields(SamplingParams)):
        value = getattr(args, name)
        if value is None and name in SAMPLING_KEYS:
            value = _wish(metadata, name)
        if value is not None:
            values[name] = _as_param(name, value)
    if (breakers := values.get("dry_sequence_breakers")) and "none" in breakers:
        values["dry_sequence_breakers"] = breakers[len(breakers) - breakers[::-1].index("none"):]
    return SamplingParams(**values)


def whole_number(least: int, most: int | None = None, *, or_zero: bool = False,
                 or_negative: bool = False) -> Callable[[str], int]:
    """Reads whole numbers from `least` to `most`, and those that llama.cpp takes for "as usual"."""
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    expected = f"expected a whole number {limits}" + ", or 0" * or_zero + ", or -1" * or_negative

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(expected) from error
        is_usual = (or_zero and value == 0) or (or_negative and value < 0)
        if not is_usual and not least <= value <= (value if most is None else most):
            raise argparse.ArgumentTypeError(expected)
        return value

    return read


def positive_number(text: str) -> float:
    """Reads finite numbers above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError("expected a number above 0")
    return value


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """How the model is loaded and run."""
    group = parser.add_argument_group("loading")
    group.add_argument("-c", "--ctx-size", type=whole_number(2, or_zero=True), default=0, metavar="N",
                       help="tokens that a conversation may hold; 0: the model's, as far as memory allows (default: 0)")
    group.add_argument("--pool-tokens", type=whole_number(2, or_zero=True), default=0, metavar="N",
                       help="tokens whose keys and values are kept, earlier conversations' too; 0: as -c (default: 0)")
    group.add_argument("--step-ms", type=_milliseconds, default=DEFAULT_STEP_MS, metavar="MS",
                       help="read prompts in steps of about so long, but at least 8 tokens, while others "
                       "generate, a third longer where several prompts wait, four times as long while nobody "
                       f"generates; 0: of any length (default: {DEFAULT_STEP_MS:g}, so {DEFAULT_STEP_MS * 4 / 3:g} "
                       "where several wait)")
    group.add_argument("--cache-audit", type=_one_in, default=0, metavar="1/N",
                       help="of N prompts that the cache has a part of, compute that of one again, while others go on, "
                       "and compare every bit; what differs is logged as an error (default: none)")
    group.add_argument("--lora", type=_adapters, action="extend", metavar="FILES",
                       help="low-rank adapters of the model, GGUF files, separated by commas")
    group.add_argument("--lora-scaled", dest="lora", type=_scaled_adapters, action="extend", metavar="FILE:SCALE,...",
                       help="the same, with how much of each is added (default: 1)")
    add_load_flags(group)
    parser.set_defaults(fail=parser.error, applies_lora=True)


def add_load_flags(group: argparse._ArgumentGroup) -> None:
    """What a backend is told of how it loads and runs a model."""
    group.add_argument("-t", "--threads", type=whole_number(1, MAX_THREADS, or_negative=True), default=-1, metavar="N",
                       help="threads; -1: one for each physical core that may be used (default: -1)")
    group.add_argument("-b", "--batch-size", type=whole_number(1), default=2048, metavar="N",
                       help="tokens of one step; the smaller of this and -ub counts (default: 2048)")
    group.add_argument("-ub", "--ubatch-size", type=whole_number(1), default=512, metavar="N",
                       help="see -b (default: 512)")
    group.add_argument("--repack", nargs="?", const="on", choices=get_args(Repack), default="auto",
                       help="off: read weights where the file has them, which saves memory (default: auto)")
    group.add_argument("-nr", "--no-repack", dest="repack", action="store_const", const="off", help="--repack off")
    group.add_argument("--compute", choices=get_args(Compute), default="int8",
                       help="arithmetic of the products; f32 is exact and slow (default: int8)")
    for letter, what in (("k", "keys"), ("v", "values")):
        group.add_argument(f"-ct{letter}", f"--cache-type-{letter}", choices=get_args(KVType), default="f16",
                           help=f"type of {what} in memory; q8_0 takes half of what f16 does (default: f16)")


def _one_in(text: str) -> int:
    match = re.fullmatch(r"1/([1-9]\d{0,8})", text)
    if match is None:
        raise argparse.ArgumentTypeError("expected a part such as 1/100, or 1/1 for all")
    return int(match[1])


def _adapters(text: str) -> list[tuple[str, float]]:
    return [(path, 1.0) for path in text.split(",")]


def _scaled_adapters(text: str) -> list[tuple[str, float]]:
    """The files and scales of "a.gguf:0.5,b.gguf:2"."""
    parts = [each.rpartition(":") for each in text.split(",")]
    try:
        adapters = [(path, float(scale)) for path, _, scale in parts]
    except ValueError:
        adapters = []
    if not adapters or not all(path and math.isfinite(scale) for path, scale in adapters):
        raise argparse.ArgumentTypeError("expected files with scales, such as a.gguf:0.5,b.gguf:2")
    return adapters


def _milliseconds(text: str) -> float:
    try:
        return EngineConfig(n_ctx=2, step_ms=float(text)).step_ms
    except ValueError as error:
        raise argparse.ArgumentTypeError("expected a number of milliseconds") from error
    except ConfigError as error:
        raise _reason(error) from error


def model_options(args: argparse.Namespace) -> dict[str, Any]:
    """Keyword arguments of LLM. Ends the process with 2 if they do not fit together."""
    if 0 < args.pool_tokens < args.ctx_size:
        args.fail(f"--pool-tokens {args.pool_tokens}: expected at least {args.ctx_size}, as -c has it")
    return {
        "n_ctx": args.ctx_size or None, "pool_tokens": args.pool_tokens or None,
        "n_threads": None if args.threads < 0 else args.threads,
        "max_batch_tokens": min(args.batch_size, args.ubatch_size), "repack": args.repack, "compute": args.compute,
        "cache_type_k": args.cache_type_k, "cache_type_v": args.cache_type_v, "step_ms": args.step_ms,
        "cache_audit": args.cache_audit, "lora": [(path, scale * args.applies_lora) for path, scale in args.lora or ()],
    }
