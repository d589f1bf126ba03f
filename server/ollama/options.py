"""Reads what Ollama's clients say of how to answer: options, format, think, keep_alive."""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

from ggpy.engine.config import SamplingParams
from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.probabilities import ProbabilitySpec
from ggpy.errors import RequestError, shown
from ggpy.hub.modelfile import OLD_PARAMETERS, PARAMETERS, read_parameter
from ggpy.server.jobs.sampling_fields import schema_constraint
from ggpy.server.model_pool.models import Entry
from ggpy.server.options.durations import parse_duration
from ggpy.server.web.fields import Fields

USUAL = SamplingParams()
DEFAULTS: dict[str, Any] = {"top_p": 0.9, "min_p": 0.0}     # where Ollama's differ from llama.cpp's
NUM_KEEP = 4
MAX_TOP_LOGPROBS = 20
FOREVER_S = 1e10        # what is longer is always
LEVELS = ("low", "medium", "high", "max")

logger = logging.getLogger("ggpy")


def read_options(fields: Fields, entry: Entry) -> dict[str, Any]:
    """The parameters of a request, and those of its model that it does not name. Raises RequestError.

    Unknown ones are left out, as Ollama does.
    """
    given = fields.mapping("options") or {}
    for name in given.keys() - PARAMETERS.keys() - OLD_PARAMETERS:
        logger.debug("option %r is unknown and left out", name)
    read = {name: read_parameter(name, value) for name, value in given.items()
            if name in PARAMETERS and value is not None}
    return {**({} if entry.stored is None else entry.stored.parameters), **read}


def default_params(params: SamplingParams) -> SamplingParams:
    """`params`, with Ollama's defaults where they are llama.cpp's."""
    return replace(params, **{name: value for name, value in DEFAULTS.items()
                              if getattr(params, name) == getattr(USUAL, name)})


def read_format(fields: Fields) -> ConstraintSpec | None:
    """What `format` makes of the answer: "json", or a schema. Raises FieldError."""
    value = fields.get("format")
    if value is None or value == "":
        return None
    if value == "json":
        return ConstraintSpec("json")
    if not isinstance(value, dict):
        raise fields.error("format", f'expected "json" or a JSON schema, found {shown(value)}')
    return schema_constraint(value)


def read_think(fields: Fields) -> bool | str | None:
    """Whether to think, or how much; None: as the model does. Raises RequestError."""
    value = fields.get("think")
    if value is None or isinstance(value, bool):
        return value
    if value not in LEVELS:
        text = f'"{value}"' if isinstance(value, str) else shown(value)
        raise RequestError(f'invalid think value: {text} (must be "high", "medium", "low", "max", true, or false)')
    return str(value)


def read_probabilities(fields: Fields) -> ProbabilitySpec | None:
    """What to tell of each token. Raises RequestError."""
    n_top = fields.integer("top_logprobs", default=0)
    if not 0 <= n_top <= MAX_TOP_LOGPROBS:
        raise RequestError(f"top_logprobs must be between 0 and {MAX_TOP_LOGPROBS}")
    return ProbabilitySpec(n_top) if fields.boolean("logprobs", default=False) else None


def refuse_images(fields: Fields, name: str) -> None:
    """Raise RequestError for pictures: models read text alone."""
    if fields.get("images"):
        raise RequestError(f'"{name}" does not support images: models of this server read text alone')


def read_keep_alive(fields: Fields) -> float | None:
    """Seconds for which the model stays without requests, inf: always; None: as it is. Raises FieldError."""
    value = fields.get("keep_alive")
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 <= value < FOREVER_S else math.inf
    if not isinstance(value, str):
        raise fields.error("keep_alive", f"expected seconds or a duration, found {shown(value)}")
    return parse_duration(value)


def apply_keep_alive(entry: Entry, seconds: float | None, default_s: float | None) -> None:
    """Have the model of `entry` stay for so long; where a request does not say, as the one before it did.

    That ends when the model goes: whatever loads it next has the server's time.
    """
    if seconds is not None:
        entry.keep_s = None if math.isinf(seconds) else seconds
    elif entry.loaded is None and entry.loading is None:
        entry.keep_s = default_s
