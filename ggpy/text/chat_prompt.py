"""A conversation as the model reads it: what a template wrote, apart from what messages say.

Control tokens that messages spell, such as "<|im_end|>", must be text to the model, or a user could end the turn and
speak as someone else. Templates look into what they write ("</think>", blanks at the ends), so that nothing can be put
around a text. Instead each spelling is hidden from the template behind one character that occurs nowhere else, which
it can neither cut in half nor change in case, and which Python prints as it is.
"""

import functools
import json
import re
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from ggpy.errors import TemplateError
from ggpy.text.chat_messages import REASONING_FIELDS, PlainMessage
from ggpy.text.partition import Span
from ggpy.text.tokenizer import Tokenizer

_STAND_INS = range(0x3400, 0x4DC0)      # rare Chinese characters: printable, without case
_STAND_IN_IN_JSON = r"\\u[34][0-9a-f]{3}"


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation in a template: `text`, and the spans of it that spell control tokens but are text."""

    text: str
    literals: tuple[Span, ...] = ()

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """Token ids, with BOS in front where the tokenizer adds it and the template has not."""
        ids = self.encode_from(0, tokenizer)
        bos = tokenizer.bos_id
        return [bos, *ids] if bos is not None and tokenizer.add_bos and ids[:1] != [bos] else ids

    def encode_from(self, start: int, tokenizer: Tokenizer) -> list[int]:
        """Token ids of text[start:] alone."""
        literals = [(max(0, first - start), last - start) for first, last in self.literals if last > start]
        return tokenizer.encode(self.text[start:], add_special=False, parse_special=True, literals=literals)

    def with_answer(self, answer: str, tokenizer: Tokenizer) -> "ChatPrompt":
        """What a later prompt begins with, if it repeats this one and the model's answer."""
        end = len(self.text)
        spans = tokenizer.control_spans(answer, tokenizer.eog_ids)
        return ChatPrompt(self.text + answer, (*self.literals, *((end + first, end + last) for first, last in spans)))

    def starts_with(self, other: "ChatPrompt") -> bool:
        """Whether `other` is how this prompt begins, the same parts of it being text."""
        end = len(other.text)
        return self.text.startswith(other.text) and other.literals == tuple(
            (first, min(last, end)) for first, last in self.literals if first < end)


class ControlMask:
    """Hides the control tokens that messages spell from a template, and finds them in what the template wrote."""

    def __init__(self, tokenizer: Tokenizer, *others: Any) -> None:
        """`others` is all that the template gets or says itself."""
        self._tokenizer = tokenizer
        self._others = others
        self._stand_ins: dict[str, str] = {}        # by what they hide

    def hide(self, value: Any, only: Container[int] | None = None) -> Any:
        """A copy of plain data whose texts spell no control token, or none of the ids `only`."""
        if isinstance(value, str):
            return self._hide_texts([value], only)[0]
        if isinstance(value, dict):
            return {self.hide(key, only): self.hide(item, only) for key, item in value.items()}
        if isinstance(value, list):
            # templates write the parts of a content without anything between them
            texts = self._hide_texts([_text_of(part) for part in value], only)
            return [self._hide_part(part, text, only) for part, text in zip(value, texts, strict=True)]
        return value

    def hide_message(self, message: PlainMessage) -> PlainMessage:
        """As `hide`. What the assistant said and thought keeps its control tokens, but for those that end answers: the
        model cannot have meant them so, its answer would have ended there."""
        own = ("content", *REASONING_FIELDS) if message["role"] == "assistant" else ()
        return {self.hide(key): self.hide(value, self._tokenizer.eog_ids if key in own else None)
                for key, value in message.items()}

    def reveal(self, text: str) -> ChatPrompt:
        """`text`, which a template wrote, with the spellings again."""
        if not self._stand_ins:
            return ChatPrompt(text)
        hidden = {stand_in: spelling for spelling, stand_in in self._stand_ins.items()}
        pieces = re.split(f"([{''.join(hidden)}]|{_STAND_IN_IN_JSON})", text)
        hidden |= {_in_ascii_json(stand_in): _in_ascii_json(spelling) for stand_in, spelling in hidden.items()}
        literals: list[Span] = []
        end = 0
        for i, piece in enumerate(pieces):
            pieces[i] = hidden.get(piece, piece)
            start, end = end, end + len(pieces[i])
            if piece in hidden:
                literals.append((start, end))
        return ChatPrompt("".join(pieces), tuple(literals))

    def _hide_part(self, part: Any, text: str, only: Container[int] | None) -> Any:
        if isinstance(part, str):
            return text
        hidden = self.hide(part, only)
        return {**hidden, "text": text} if isinstance(part, dict) and isinstance(part.get("text"), str) else hidden

    def _hide_texts(self, texts: Sequence[str], only: Container[int] | None) -> list[str]:
        """`texts` without control tokens, also such as begin in one and end in another."""
        spans = self._tokenizer.control_spans("".join(texts), only)
        return [self._hide_spans(text, parts) for text, parts in zip(texts, _divide(spans, texts), strict=True)]

    def _hide_spans(self, text: str, spans: Sequence[Span]) -> str:
        pieces: list[str] = []
        end = 0
        for first, last in spans:
            pieces += text[end:first], self._stand_in(text[first:last])
            end = last
        return "".join([*pieces, text[end:]])

    def _stand_in(self, spelling: str) -> str:
        if spelling not in self._stand_ins:
            free = next(self._free, None)
            if free is None:
                raise TemplateError(f"the messages spell more than {len(self._stand_ins):,} different control tokens")
            self._stand_ins[spelling] = free
        return self._stand_ins[spelling]

    @functools.cached_property
    def _free(self) -> Iterator[str]:
        """Characters that occur nowhere."""
        used = str(self._others)
        return (c for c in map(chr, _STAND_INS) if c not in used and _in_ascii_json(c) not in used)


def _in_ascii_json(text: str) -> str:
    return json.dumps(text)[1:-1]


def _text_of(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _divide(spans: Sequence[Span], texts: Sequence[str]) -> list[list[Span]]:
    """`spans` of all `texts` joined, as spans of each."""
    starts = list(accumulate(map(len, texts), initial=0))
    divided: list[list[Span]] = [[] for _ in texts]
    for first, last in spans:
        i = bisect_right(starts, first) - 1
        while starts[i] < last:
            if starts[i + 1] > starts[i]:
                divided[i].append((max(first, starts[i]) - starts[i], min(last, starts[i + 1]) - starts[i]))
            i += 1
    return divided
