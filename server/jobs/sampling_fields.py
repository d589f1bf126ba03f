"""Reads from a request how its tokens are chosen: the fields of llama-server, which every dialect takes."""

from __future__ import annotations

import logging
import math
import re
from dataclasses import replace
from typing import Any

import msgspec

from ggpy.engine.config import MAX_COUNT, RANDOM_SEED, SamplingParams, sampler_name, samplers_of_letters
from ggpy.engine.constraint import ConstraintSpec
from ggpy.errors import ConfigError, RequestError
from ggpy.made import LIMITS
from ggpy.server.web.fields import Fields
from ggpy.text import Tokenizer

MAX_BIASES = 2**18          # tokens and texts of a logit_bias

# number -> its limits; what is beyond them is taken for them
CLAMPED_WHOLE: dict[str, tuple[int, int]] = {"top_k": (0, MAX_COUNT), "mirostat": (0, 2)}
CLAMPED: dict[str, tuple[float, float]] = {
    **{name: limits for name, limits in LIMITS.items() if name not in CLAMPED_WHOLE},
    "dynatemp_range": (0, math.inf), "dynatemp_exponent": (0, math.inf), "top_n_sigma": (-math.inf, math.inf),
    "xtc_probability": (0, 1), "xtc_threshold": (0, 1), "dry_multiplier": (0, math.inf),
    "mirostat_tau": (0, math.inf), "mirostat_eta": (0, math.inf), "adaptive_target": (-math.inf, 1),
}
# whole numbers of 0 or more; others are errors
STRICT_WHOLE = ("repeat_last_n", "dry_allowed_length", "dry_penalty_last_n", "min_keep")

logger = logging.getLogger("ggpy")


def read_sampling(fields: Fields, defaults: SamplingParams, tokenizer: Tokenizer) -> SamplingParams:
    """The parameters in `fields`, `defaults` for those that are not there. Raises RequestError."""
    values: dict[str, Any] = {}
    for name, (low, high) in CLAMPED.items():
        if (number := fields.number(name)) is not None:
            values[name] = min(max(number, low), high)
    for name, limits in CLAMPED_WHOLE.items():
        if (whole := fields.integer(name)) is not None:
            values[name] = min(max(whole, limits[0]), limits[1])
    for name in STRICT_WHOLE:
        if (whole := fields.integer(name, least=0, most=MAX_COUNT)) is not None:
            values[name] = whole
    if (base := fields.number("dry_base")) is not None:
        values["dry_base"] = base if base >= 1 else defaults.dry_base
    if (decay := fields.number("adaptive_decay")) is not None:
        if not 0 <= decay <= 0.99:
            raise fields.error("adaptive_decay", f"Value must be between 0 and 0.99, found {decay:g}")
        values["adaptive_decay"] = decay
    if "seed" in fields:
        seed = fields.integer("seed", default=-1)
        values["seed"] = None if seed < 0 or seed == RANDOM_SEED else seed & RANDOM_SEED
    if "samplers" in fields:
        values["samplers"] = read_samplers(fields)
    if "dry_sequence_breakers" in fields:
        values["dry_sequence_breakers"] = read_breakers(fields)
    if "ignore_eos" in fields:
        values["ignore_eos"] = fields.boolean("ignore_eos", default=False)
    if stop := [text for text in fields.texts("stop") if text]:
        values["stop"] = tuple(stop)
    if "logit_bias" in fields:
        values["logit_bias"] = (*defaults.logit_bias, *read_logit_bias(fields, tokenizer))
    values["max_tokens"] = read_max_tokens(fields, defaults.max_tokens)
    try:
        return replace(defaults, **values)
    except ConfigError as error:
        raise RequestError(str(error)) from error


def read_max_tokens(fields: Fields, default: int | None, *names: str) -> int | None:
    """Tokens to generate; None: as many as fit. 0 is taken for 1, as llama-server does."""
    wanted = fields.integer(*(names or ("n_predict", "max_completion_tokens", "max_tokens")), default=-1, least=-1,
                            most=MAX_COUNT)
    return default if wanted < 0 else max(1, wanted)


def read_samplers(fields: Fields) -> tuple[str, ...]:
    """The samplers, by names in an array or by letters in a string; unknown ones are left out."""
    given = fields.get("samplers")
    if not isinstance(given, str | list) or not all(isinstance(name, str) for name in given):
        raise fields.error("samplers", "expected an array of names, or a string with a letter for each")
    read = (lambda letter: samplers_of_letters(letter)[0]) if isinstance(given, str) else sampler_name
    found = []
    for name in given:
        try:
            found.append(read(name))
        except ConfigError as error:
            logger.warning("%s; it is left out", error)
    return tuple(found)


def read_breakers(fields: Fields) -> tuple[str, ...]:
    breakers = fields.array("dry_sequence_breakers") or []
    if not breakers or not all(isinstance(text, str) and text for text in breakers):
        raise fields.error("dry_sequence_breakers", "expected an array of strings, one at least")
    return tuple(breakers)


def read_logit_bias(fields: Fields, tokenizer: Tokenizer) -> list[tuple[int, float]]:
    """Pairs of tokens and what is added to their logits, from pairs or an object; a text stands for all its tokens.

    Tokens that the vocabulary does not have are left out, as llama-server does.
    """
    given = fields.get("logit_bias")
    if isinstance(given, dict):
        pairs: list[Any] = [[int(key) if re.fullmatch(r"-?\d{1,11}", key, re.ASCII) else key, value]
                            for key, value in given.items()]
    elif isinstance(given, list):
        pairs = given
    else:
        raise fields.error("logit_bias", "expected an object of tokens and numbers, or an array of pairs")
    if len(pairs) > MAX_BIASES:
        raise fields.error("logit_bias", f"{len(pairs):,} are too many; expected {MAX_BIASES:,} at most")
    biases = []
    for i, pair in enumerate(pairs):
        if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], bool) \
                or not isinstance(pair[0], int | str):
            raise fields.error(f"logit_bias[{i}]", "expected a token or a text, and a number or false")
        bias = read_bias(fields, i, pair[1])
        tokens = tokenizer.encode(pair[0], add_special=False) if isinstance(pair[0], str) else [pair[0]]
        biases += [(token, bias) for token in tokens if 0 <= token < tokenizer.n_vocab]
    return biases


def read_bias(fields: Fields, i: int, value: Any) -> float:
    if value is False:
        return -math.inf
    if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e30:
        raise fields.error(f"logit_bias[{i}]", "expected a number, or false for a token that is never chosen")
    return float(value)


def read_constraint(fields: Fields) -> ConstraintSpec | None:
    """What the answer has to be by the fields `grammar` and `json_schema`, of which the first counts."""
    grammar = fields.text("grammar")
    if grammar:
        return ConstraintSpec("gbnf", grammar)
    schema = fields.get("json_schema")
    if schema is None:
        return None
    if not isinstance(schema, dict | bool):
        raise fields.error("json_schema", "expected an object")
    return schema_constraint(schema)


def schema_constraint(schema: Any) -> ConstraintSpec:
    """That the answer is JSON that meets `schema`; an empty one is any object."""
    if schema == {}:
        return ConstraintSpec("json")
    return ConstraintSpec("json_schema", msgspec.json.encode(schema).decode())
