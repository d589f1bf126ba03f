"""Modelfiles: what a model is made of, as Ollama writes it down, one instruction on each line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ggpy.errors import RequestError, shown

Kind = Literal["whole", "number", "yes", "texts"]

PARAMETERS: dict[str, Kind] = {
    "num_ctx": "whole", "num_batch": "whole", "num_gpu": "whole", "main_gpu": "whole", "use_mmap": "yes",
    "num_thread": "whole", "num_keep": "whole", "seed": "whole", "num_predict": "whole", "top_k": "whole",
    "top_p": "number", "min_p": "number", "typical_p": "number", "repeat_last_n": "whole", "temperature": "number",
    "repeat_penalty": "number", "presence_penalty": "number", "frequency_penalty": "number", "stop": "texts",
    "draft_num_predict": "whole",
}
# of older releases, which clients still send; they mean nothing any more
OLD_PARAMETERS = frozenset({"penalize_newline", "low_vram", "f16_kv", "logits_all", "vocab_only", "use_mlock",
                            "mirostat", "mirostat_tau", "mirostat_eta", "tfs_z", "numa", "embedding_only"})
TYPES: dict[Kind, str] = {"whole": "integer", "number": "float32", "yes": "boolean", "texts": "array of strings"}
INSTRUCTIONS = ("from", "license", "template", "system", "adapter", "draft", "renderer", "parser", "parameter",
                "message", "requires")
ROLES = ("system", "user", "assistant")
LIMIT = 2**63


@dataclass(slots=True)
class Modelfile:
    """What the instructions say."""

    sources: list[str] = field(default_factory=list)        # of FROM
    parameters: dict[str, Any] = field(default_factory=dict)
    template: str | None = None
    system: str | None = None
    adapters: list[str] = field(default_factory=list)
    licenses: list[str] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)


def parse_modelfile(text: str) -> Modelfile:
    """Read a Modelfile. Raises RequestError, with the number of the line."""
    found, lines, i = Modelfile(), text.splitlines(), 0
    while i < len(lines):
        line, number = lines[i].strip(), i + 1
        i += 1
        if not line or line.startswith("#"):
            continue
        command, _, rest = line.partition(" ")
        if command.lower() not in INSTRUCTIONS:
            known = ", ".join(f'"{name}"' for name in INSTRUCTIONS[:-1])
            raise RequestError(f"(line {number}): command must be one of {known}, or \"{INSTRUCTIONS[-1]}\", found "
                               f"{shown(command)}")
        rest = rest.strip()
        head = ""
        if command.lower() in ("parameter", "message"):
            head, _, rest = rest.partition(" ")
        value, i = _value(rest.strip(), lines, i, number)
        try:
            _add(found, command.lower(), head, value)
        except RequestError as error:
            raise RequestError(f"(line {number}): {error}") from error
    if not found.sources:
        raise RequestError("no FROM line")
    return found


def _value(text: str, lines: Sequence[str], i: int, number: int) -> tuple[str, int]:
    """A value that begins with `text` and may go on in line `i`; the next line behind it."""
    quote = next((quote for quote in ('"""', '"') if text.startswith(quote)), "")
    if not quote:
        return text, i
    while len(text.rstrip()) < 2 * len(quote) or not text.rstrip().endswith(quote):
        if i == len(lines):
            raise RequestError(f"(line {number}): unexpected EOF; the {quote} is not closed")
        text = f"{text}\n{lines[i]}"
        i += 1
    return text.rstrip()[len(quote) : -len(quote)], i


def _add(found: Modelfile, command: str, head: str, value: str) -> None:
    if not value and command != "system":
        raise RequestError(f"{command.upper()} has no value")
    match command:
        case "from":
            found.sources.append(value)
        case "parameter":
            if head not in OLD_PARAMETERS:
                read = read_parameter(head, value)
                found.parameters[head] = [*found.parameters.get(head, ()), *read] if head == "stop" else read
        case "template":
            found.template = value
        case "system":
            found.system = value
        case "adapter":
            found.adapters.append(value)
        case "license":
            found.licenses.append(value)
        case "message":
            found.messages.append(check_message({"role": head.lower(), "content": value}))


def check_message(message: Mapping[str, Any]) -> dict[str, str]:
    """A message of a Modelfile. Raises RequestError for another role or content."""
    role, content = message.get("role"), message.get("content")
    if role not in ROLES or not isinstance(content, str):
        raise RequestError(f"message {shown(dict(message))}: role must be one of {', '.join(ROLES)}, and content a "
                           "string")
    return {"role": role, "content": content}


def check_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a Modelfile, each with a value of its type. Raises RequestError."""
    return {name: read_parameter(name, value) for name, value in given.items()
            if name not in OLD_PARAMETERS and value is not None}


def read_parameter(name: str, value: Any) -> Any:
    """`value` as the parameter `name` has it; a text may spell it. Raises RequestError."""
    kind = PARAMETERS.get(name)
    if kind is None:
        raise RequestError(f"unknown parameter '{name:.80}'; there are {', '.join(PARAMETERS)}")
    read = _read(kind, value)
    if read is None:
        raise RequestError(f'option "{name}" must be of type {TYPES[kind]}, found {shown(value)}')
    return read


def _read(kind: Kind, value: Any) -> Any:
    """None if `value` is not of that kind."""
    if kind == "texts":
        texts = [value] if isinstance(value, str) else value
        return texts if isinstance(texts, list) and all(isinstance(text, str) for text in texts) else None
    if isinstance(value, str):
        value = _spelled(value.strip())
    if kind == "yes":
        return value if isinstance(value, bool) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LIMIT < value < LIMIT:     # nan too
        return None
    return math.trunc(value) if kind == "whole" else float(value)


def _spelled(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return float(text) if len(text) < 40 else None
    except ValueError:
        return None


def parameter_lines(parameters: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as a Modelfile has them; a parameter with several values has several."""
    lines = []
    for name, value in parameters.items():
        for one in value if isinstance(value, list) else [value]:
            text = f'"{one}"' if isinstance(one, str) else str(one).lower() if isinstance(one, bool) else f"{one:g}" \
                if isinstance(one, float) else str(one)
            lines.append((name, text))
    return lines
