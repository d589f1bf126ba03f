"""Cutting a text at its special tokens."""

from collections import defaultdict
from dataclasses import dataclass

from ggpy.text.vocab import TokenAttr, Vocab

_WHITESPACE = " \t\n\v\f\r"
_PREFIX_LENGTH = 3


@dataclass(frozen=True, slots=True)
class _SpecialToken:
    rank: int       # position in the order of search
    id: int
    text: str
    is_parsed: bool     # found only if the caller asked for special tokens; user-defined tokens always are
    lstrip: bool
    rstrip: bool


class SpecialTokenPartition:
    """Finds special and user-defined tokens in a text: the longest token first, each from left to right.

    Longest first holds over the whole text, as in llama.cpp, not at each position.
    """

    def __init__(self, vocab: Vocab) -> None:
        ids = vocab.with_attr(TokenAttr.CONTROL | TokenAttr.USER_DEFINED | TokenAttr.UNKNOWN)
        ids.sort(key=lambda i: -len(vocab.tokens[i].encode("utf-8", "surrogateescape")))
        # Thousands of tokens may share a prefix ("<unused"); one search for it rules all of them out.
        self._by_prefix: defaultdict[str, list[_SpecialToken]] = defaultdict(list)
        for rank, i in enumerate(ids):
            token = _SpecialToken(
                rank, i, vocab.tokens[i], vocab.has(i, TokenAttr.CONTROL | TokenAttr.UNKNOWN),
                vocab.has(i, TokenAttr.LSTRIP), vocab.has(i, TokenAttr.RSTRIP),
            )
            self._by_prefix[token.text[:_PREFIX_LENGTH]].append(token)

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """`text` as token ids and the non-empty texts between them; control tokens only if `parse_special`."""
        pieces: list[str | int] = [text] if text else []
        for token in self._present(text, parse_special):
            pieces = [
                part for piece in pieces for part in ([piece] if isinstance(piece, int) else _cut(piece, token))
            ]
        return pieces

    def _present(self, text: str, parse_special: bool) -> list[_SpecialToken]:
        found = [
            token
            for prefix, tokens in self._by_prefix.items() if prefix in text
            for token in tokens if (parse_special or not token.is_parsed) and token.text in text
        ]
        return sorted(found, key=lambda token: token.rank)


def _cut(text: str, token: _SpecialToken) -> list[str | int]:
    pieces: list[str | int] = []
    start = 0
    while (at := text.find(token.text, start)) >= 0:
        left = text[start:at]
        if token.lstrip:
            left = left.rstrip(_WHITESPACE)
        if left:
            pieces.append(left)
        pieces.append(token.id)
        start = at + len(token.text)
        if token.rstrip:
            start = len(text) - len(text[start:].lstrip(_WHITESPACE))
    if start < len(text):
        pieces.append(text[start:])
    return pieces
