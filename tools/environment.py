"""Defaults of flags from llama.cpp's environment variables: LLAMA_ARG_THREADS=4 is -t 4 where -t is not given."""

from __future__ import annotations

import argparse
from typing import Any

from ggpy import config

# where an argument lands in the namespace -> its variable, without LLAMA_ARG_ in front
VARIABLES = {
    "ctx_size": "CTX_SIZE", "threads": "THREADS", "batch_size": "BATCH", "ubatch_size": "UBATCH",
    "kv_type": "CACHE_TYPE_K", "max_tokens": "N_PREDICT", "temperature": "TEMPERATURE", "top_k": "TOP_K",
    "top_p": "TOP_P", "min_p": "MIN_P", "repeat_penalty": "REPEAT_PENALTY", "presence_penalty": "PRESENCE_PENALTY",
    "frequency_penalty": "FREQUENCY_PENALTY", "chat_template": "CHAT_TEMPLATE",
    "chat_template_file": "CHAT_TEMPLATE_FILE", "chat_template_kwargs": "CHAT_TEMPLATE_KWARGS",
    "offline": "OFFLINE", "show_timings": "SHOW_TIMINGS",
}


def apply(parser: argparse.ArgumentParser) -> None:
    """Make the variables that are set the defaults of `parser`; ends the process with 2 for values that cannot be."""
    for action in parser._actions:
        name = VARIABLES.get(action.dest, "")
        value = _flag(name) if action.nargs == 0 else config.llama_arg(name)
        if name and value is not None:
            parser.set_defaults(**{action.dest: _converted(parser, action, name, value)})


def model() -> str | None:
    """The model that the variables name."""
    repo = config.llama_arg("HF_REPO")
    return config.llama_arg("MODEL") or (f"hf:{repo}" if repo else None)


def _flag(name: str) -> bool | None:
    return config.llama_flag(name) if name else None


def _converted(parser: argparse.ArgumentParser, action: argparse.Action, name: str, value: Any) -> Any:
    try:
        if isinstance(value, str) and callable(action.type):
            value = action.type(value)
    except (ValueError, TypeError, argparse.ArgumentTypeError) as error:
        parser.error(f"LLAMA_ARG_{name}={value}: {error}")
    if action.choices is not None and value not in action.choices:
        parser.error(f"LLAMA_ARG_{name}={value}: expected one of {', '.join(map(str, action.choices))}")
    return value
