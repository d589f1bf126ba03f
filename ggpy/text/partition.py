"""Cutting a text at its special tokens."""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ggpy.text.vocab import TokenAttr, Vocab

Span = tuple[int, int]      # start and end within a text
_WHITESPACE = " \t\n\v\f\r"
_PREFIX_LENGTH = 3
_MAX_CONTROL = 256      # characters; longer control tokens are not looked for in parts
_WORD = re.compile(r"\w*")


@dataclass(frozen=True, slots=True)
class _SpecialToken:
    rank: int       # position in the order of search
    id: int
    text: str
    is_parsed: bool     # found only if the caller asked for special tokens; user-defined tokens always are
    is_control: bool    # stands for something other than its text
    lstrip: bool
    rstrip: bool


class SpecialTokenPartition:
    """Finds special and user-defined tokens in a text: the longest token first, each from left to right.

    Longest first holds over the whole text, as in llama.cpp, not at each position.
    """

    def __init__(self, vocab: Vocab) -> None:
        parsed = TokenAttr.CONTROL | TokenAttr.UNKNOWN
        ids = vocab.with_attr(parsed | TokenAttr.USER_DEFINED)
        ids.sort(key=lambda i: -len(vocab.tokens[i].encode("utf-8", "surrogateescape")))
        # Thousands of tokens may share a prefix ("<unused"), and nearly all their first character; one search for it
        # rules all of them out.
        self._by_prefix: defaultdict[str, dict[str, list[_SpecialToken]]] = defaultdict(dict)
        for rank, i in enumerate(ids):
            token = _SpecialToken(
                rank, i, vocab.tokens[i], vocab.has(i, parsed), vocab.has(i, parsed | TokenAttr.STRUCTURE),
                vocab.has(i, TokenAttr.LSTRIP), vocab.has(i, TokenAttr.RSTRIP),
            )
            self._by_prefix[token.text[:1]].setdefault(token.text[:_PREFIX_LENGTH], []).append(token)
        control = [vocab.tokens[i] for i in ids if vocab.has(i, parsed | TokenAttr.STRUCTURE)]
        self._control = _Starts(control)
        self._control_backwards = _Starts(text[::-1] for text in control)
        self._all_control = "\0".join(control)      # one search instead of thousands
        self._max_control = min(_MAX_CONTROL, max(map(len, control), default=0))

    def split(self, text: str, parse_special: bool, literals: Sequence[Span] = ()) -> list[str | int]:
        """`text` as token ids and the non-empty texts between them; control tokens only if `parse_special`.

        In `literals`, spans in ascending order that do not overlap, control tokens are never read.
        """
        pieces: list[Span | int] = [(0, len(text))] if text else []
        for token in self._present(text, parse_special):
            barred = literals if token.is_control else ()
            pieces = [
                part for piece in pieces
                for part in ([piece] if isinstance(piece, int) else _cut(text, piece, token, barred))
            ]
        return [piece if isinstance(piece, int) else text[piece[0] : piece[1]] for piece in pieces]

    def control_spans(self, text: str, kept: Container[str] = ()) -> list[Span]:
        """Where `text` spells control tokens other than `kept`, or could, at its ends, be a part of one.

        A part counts if it is more than a word: "<|im_" does, "user" in "<|user|>" does not. Blanks at the ends may be
        trimmed. The spans are ascending, overlapping ones as one.
        """
        found = list(self._partial_spans(text))
        for token in self._present(text, parse_special=True):
            if token.is_control and token.text not in kept:
                at = -1
                while (at := text.find(token.text, at + 1)) >= 0:
                    found.append((at, at + len(token.text)))
        merged: list[Span] = []
        for start, end in sorted(found):
            if merged and start < merged[-1][1]:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((start, end))
        return merged

    def _partial_spans(self, text: str) -> Iterator[Span]:
        """The longest parts of control tokens that `text` begins with, ends with or is."""
        trimmed = text.strip()
        first = len(text) - len(text.lstrip())
        for start, end in {(0, len(text)), (first, first + len(trimmed))}:
            part = text[start:end]
            is_short = len(part) < self._max_control and not _WORD.fullmatch(part)
            if is_short and part in self._all_control and part not in self._control:
                yield start, end
            head = self._control_backwards.longest(part[:self._max_control][::-1])
            tail = self._control.longest(part[-self._max_control:])
            if head:
                yield start, start + head
            if tail:
                yield end - tail, end

    def _present(self, text: str, parse_special: bool) -> list[_SpecialToken]:
        found = [
            token
            for first, by_prefix in self._by_prefix.items() if first in text
            for prefix, tokens in by_prefix.items() if prefix in text
            for token in tokens if (parse_special or not token.is_parsed) and token.text in text
        ]
        return sorted(found, key=lambda token: token.rank)


class _Starts:
    """Texts, of which one may begin at the end of another text."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = sorted(text for text in texts if text)
        firsts = "".join(sorted({re.escape(text[0]) for text in self._texts}))
        self._first = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def __contains__(self, text: str) -> bool:
        i = bisect_left(self._texts, text)
        return self._texts[i : i + 1] == [text]

    def longest(self, text: str) -> int:
        """How many characters at the end of `text`, more than a word, one of these begins with."""
        for found in self._first.finditer(text):
            part = text[found.start():]
            i = bisect_right(self._texts, part)     # of those that go on behind `part`, the first
            if i < len(self._texts) and self._texts[i].startswith(part) and not _WORD.fullmatch(part):
                return len(part)
        return 0


def _cut(text: str, piece: Span, token: _SpecialToken, barred: Sequence[Span]) -> list[Span | int]:
    """text[slice(*piece)] at the places of `token` outside of `barred`."""
    parts: list[Span | int] = []
    start, end = piece
    search = start
    while (at := text.find(token.text, search, end)) >= 0:
        search = at + len(token.text)
        if _overlaps(barred, at, search):
            search = at + 1
            continue
        left = start + len(text[start:at].rstrip(_WHITESPACE)) if token.lstrip else at
        if left > start:
            parts.append((start, left))
        parts.append(token.id)
        if token.rstrip:
            search = end - len(text[search:end].lstrip(_WHITESPACE))
        start = search
    if start < end:
        parts.append((start, end))
    return parts


def _overlaps(spans: Sequence[Span], start: int, end: int) -> bool:
    """Whether one of `spans`, ascending and apart, has a part of start:end."""
    before = bisect_left(spans, (end, 0))       # those that begin before `end`
    return before > 0 and spans[before - 1][1] > start
