"""Prompts in the shapes that llama-server takes: texts, tokens, and mixtures of them."""

from __future__ import annotations

from typing import Any

from ggpy.errors import shown
from ggpy.server.errors import ContextSizeError
from ggpy.server.web.fields import Fields, named
from ggpy.text import Tokenizer

MAX_PROMPTS = 1024      # of one request
SHAPES = "a string, an array of tokens and strings, or an array of prompts"


def read_prompts(fields: Fields, name: str, tokenizer: Tokenizer, *,
                 n_ctx: int | None = None) -> tuple[list[list[int]], bool]:
    """The tokens of each prompt in field `name`, and whether it is an array of several prompts.

    Raises FieldError, and ContextSizeError for a text that is far longer than `n_ctx` tokens.
    """
    value = fields.get(name)
    if value is None:
        raise fields.missing(name)
    check_length(value, tokenizer, n_ctx)
    if not is_prompt_list(value):
        return [prompt_tokens(fields, name, value, tokenizer)], False
    if len(value) > MAX_PROMPTS:
        raise fields.error(name, f"{len(value):,} prompts are too many; expected {MAX_PROMPTS:,} at most")
    return [prompt_tokens(fields, f"{name}[{i}]", item, tokenizer) for i, item in enumerate(value)], True


def check_length(value: Any, tokenizer: Tokenizer, n_ctx: int | None) -> None:
    """Raise ContextSizeError for a text, or one in a list, that cannot fit: reading all of it would take long."""
    for text in value if isinstance(value, list) else [value]:
        if n_ctx is not None and isinstance(text, str) and len(text) > n_ctx:
            n_least = tokenizer.least_tokens(text)
            if n_least >= n_ctx:
                raise ContextSizeError(n_least, n_ctx, is_least=True)


def is_prompt_list(value: Any) -> bool:
    """Whether it is an array of prompts: one without tokens of its own."""
    return isinstance(value, list) and not any(isinstance(item, int) for item in value) and bool(value)


def prompt_tokens(fields: Fields, name: str, value: Any, tokenizer: Tokenizer) -> list[int]:
    """The tokens of one prompt; what the vocabulary puts in front of texts comes only where one begins."""
    if isinstance(value, str):
        return tokenizer.encode(value, add_special=True, parse_special=True)
    if isinstance(value, dict):
        return object_tokens(Fields(value, f"{fields.path}{name}."), tokenizer)
    if isinstance(value, list):
        return mixed_tokens(fields, name, value, tokenizer)
    raise fields.error(name, f"expected {SHAPES}, found {named(value)}")


def object_tokens(prompt: Fields, tokenizer: Tokenizer) -> list[int]:
    """The tokens of {"prompt_string": ...}, which may hold pictures for a model that sees them."""
    text = prompt.text("prompt_string")
    if text is None:
        raise prompt.missing("prompt_string")
    if prompt.get("multimodal_data"):
        raise prompt.error("multimodal_data", "this model reads text alone")
    return tokenizer.encode(text, add_special=True, parse_special=True)


def mixed_tokens(fields: Fields, name: str, parts: list[Any], tokenizer: Tokenizer, *, add_special: bool = True,
                 parse_special: bool = True) -> list[int]:
    """The tokens of an array of tokens and texts."""
    if set(map(type, parts)) == {int} and min(parts) >= 0 and max(parts) < tokenizer.n_vocab:
        return [*parts]
    tokens: list[int] = []
    for i, part in enumerate(parts):
        if isinstance(part, str):
            tokens += tokenizer.encode(part, add_special=add_special and i == 0, parse_special=parse_special)
        elif isinstance(part, int) and not isinstance(part, bool):
            if not 0 <= part < tokenizer.n_vocab:
                raise fields.error(f"{name}[{i}]", f"token {shown(part)} is not in the vocabulary; expected 0 to "
                                                   f"{tokenizer.n_vocab - 1}")
            tokens.append(part)
        else:
            raise fields.error(f"{name}[{i}]", f"expected a token or a string, found {named(part)}")
    return tokens
