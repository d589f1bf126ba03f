"""A conversation as the model reads it: what a template wrote, apart from what messages say.

Control tokens that messages spell, such as "<|im_end|>", must be text to the model, or a user could end the turn and
speak as someone else. Templates look into what they write ("</think>", blanks at the ends), so that nothing can be put
around a text. Instead each spelling is hidden from the template behind one character that occurs nowhere else, which
it can neither cut in half nor change in case, and which Python prints as it is.

So is what a text begins or ends with that a neighbour could complete: of "<|im_" in a name and "end|>" in the content
behind it both are hidden. What stays open is a template that writes its own brackets around a text of nothing but a
word ("<|" + name + "|>", which is how some name the role) or that cuts a text in two and writes the halves elsewhere.
"""

import functools
import json
import re
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import Any

from ggpy.errors import TemplateError
from ggpy.text.chat_messages import PlainMessage
from ggpy.text.message_checks import REASONING_FIELDS
from ggpy.text.partition import Span
from ggpy.text.tokenizer import Tokenizer

# What templates look for in an assistant's message, to tell what it thought from what it said. In some vocabularies
# these are control tokens, but none that ends a turn or begins another.
REASONING_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
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
        spans = tokenizer.control_spans(answer, REASONING_TAGS)
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

    def hide(self, value: Any, kept: Container[str] = ()) -> Any:
        """A copy of plain data whose texts spell no control token but those of `kept`."""
        if isinstance(value, str):
            return self._hide_spans(value, self._tokenizer.control_spans(value, kept))
        if isinstance(value, dict):
            return {self.hide(key, kept): self.hide(item, kept) for key, item in value.items()}
        if isinstance(value, list):
            return [self.hide(item, kept) for item in value]
        return value

    def hide_message(self, message: PlainMessage) -> PlainMessage:
        """As `hide`. What the assistant said and thought keeps the tags of its reasoning; of other control tokens it
        holds echoes alone, for an answer's text has none."""
        own = ("content", *REASONING_FIELDS) if message["role"] == "assistant" else ()
        return {self.hide(key): self.hide(value, REASONING_TAGS if key in own else ())
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

    def _hide_spans(self, text: str, spans: list[Span]) -> str:
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
