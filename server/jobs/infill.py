"""Prompts that ask for the middle of a text: /infill."""

from __future__ import annotations

from ggpy.server.errors import NotSupportedError
from ggpy.server.jobs.prompts import mixed_tokens
from ggpy.server.web.fields import Fields, named
from ggpy.text import Tokenizer

SEPARATOR = "\n\n--- snippet ---\n\n"       # of texts, for models without a token for it
PROJECT = "myproject\n"                     # what llama-server calls a repository


def infill_tokens(fields: Fields, tokenizer: Tokenizer, *, n_ctx: int, n_batch: int, n_predict: int | None,
                  is_spm: bool) -> list[int]:
    """The prompt of `fields`: other texts, then what stands before the gap and what stands behind it.

    Of what is before it the last tokens are taken, of what is behind it the first, 3 to 1 in `n_batch` tokens; other
    texts fill the context. `is_spm` puts the suffix first. Raises NotSupportedError if the vocabulary has no tokens for
    it, FieldError for what is missing.
    """
    before_id, behind_id, middle_id = tokenizer.fim_prefix_id, tokenizer.fim_suffix_id, tokenizer.fim_middle_id
    if before_id is None or behind_id is None or middle_id is None:
        raise NotSupportedError("Infill is not supported by this model: it has no tokens for prefix, suffix and middle")
    extra = extra_tokens(fields, tokenizer)
    prompt = [] if fields.get("prompt") is None else text_tokens(fields, "prompt", tokenizer)
    before = text_tokens(fields, "input_prefix", tokenizer)
    behind = text_tokens(fields, "input_suffix", tokenizer)
    n_before = min(len(before), 3 * (n_batch // 4))
    before = [before_id, *before[len(before) - n_before :], *prompt]
    behind = [behind_id, *behind[: max(0, n_batch // 4 - (2 + len(prompt)))]]
    n_extra = min(max(0, n_ctx - n_batch - 2 * (-1 if n_predict is None else n_predict)), len(extra))
    bos = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
    parts = [*behind, *before] if is_spm else [*before, *behind]
    return [*extra[len(extra) - n_extra :], *bos, *parts, middle_id]


def text_tokens(fields: Fields, name: str, tokenizer: Tokenizer) -> list[int]:
    value = fields.get(name)
    if value is None:
        raise fields.missing(name)
    if not isinstance(value, str | list):
        raise fields.error(name, f"expected a string, found {named(value)}")
    parts = [value] if isinstance(value, str) else value
    return mixed_tokens(fields, name, parts, tokenizer, add_special=False, parse_special=False)


def extra_tokens(fields: Fields, tokenizer: Tokenizer) -> list[int]:
    """Other texts of the project, each behind its name."""
    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False)

    tokens: list[int] = []
    if tokenizer.fim_rep_id is not None:
        tokens += [tokenizer.fim_rep_id, *encoded(PROJECT)]
    for chunk in fields.objects("input_extra"):
        text, name = chunk.text("text"), chunk.text("filename", default="tmp")
        if text is None:
            raise chunk.missing("text")
        head = encoded(SEPARATOR) if tokenizer.fim_sep_id is None else [tokenizer.fim_sep_id, *encoded(f"{name}\n")]
        tokens += [*head, *encoded(text)]
    if tokenizer.fim_sep_id is not None:
        tokens += [tokenizer.fim_sep_id, *encoded("filename\n")]
    return tokens
