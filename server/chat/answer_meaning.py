"""Whether two answers of a model mean the same, however they are written."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.server.chat.reader import control_tokens
from ggpy.server.model_pool.answer_memory import IsSame
from ggpy.text import Tokenizer
from ggpy.text.tool_calls import AnswerStyle, ParsedAnswer, parse_answer


def same_answers(tokenizer: Tokenizer, style: AnswerStyle, tools: Sequence[Mapping[str, Any]]) -> IsSame:
    """Tells whether two answers of a model that answers in `style` mean the same: they differ in the spaces around
    what was said and reasoned and in the way in which JSON is written, if at all."""
    tool_format, tags = style.tool_format, style.reasoning
    shown = control_tokens(tokenizer, (*tool_format.marks, tags.begin, tags.end))

    def meaning(tokens: Sequence[int], is_open: bool) -> tuple[Any, ...]:
        text = shown_text(tokenizer, tokens, shown)
        return meaning_of(parse_answer(text, tool_format, tools, reasoning=tags, is_open=is_open))

    return lambda written, known, is_open: meaning(written, is_open) == meaning(known, is_open)


def shown_text(tokenizer: Tokenizer, tokens: Sequence[int], shown: Mapping[int, str]) -> str:
    """The text of `tokens` with the control tokens `shown` in it."""
    pieces: list[str] = []
    start = 0
    for i, token in enumerate(tokens):
        if token in shown:
            pieces += tokenizer.decode(tokens[start:i], unparse_special=False), shown[token]
            start = i + 1
    return "".join([*pieces, tokenizer.decode(tokens[start:], unparse_special=False)])


def meaning_of(answer: ParsedAnswer) -> tuple[Any, ...]:
    """What is compared of an answer."""
    calls = [(call.name, call.is_complete, plain_json(call.arguments)) for call in answer.calls]
    return answer.reasoning.strip(), answer.content.strip(), calls


def plain_json(text: str) -> str:
    """JSON as one always writes it; text that is none as it is."""
    try:
        return json.dumps(json.loads(text, parse_float=plain_number), sort_keys=True)
    except (ValueError, RecursionError):
        return text


def plain_number(text: str) -> float | int:
    """A number; clients write 1.0 as 1."""
    number = float(text)
    return int(number) if number.is_integer() else number
