"""WordPiece as BERT models use it: the longest token that fits, from left to right, word by word."""

import unicodedata
from collections.abc import Mapping
from typing import Any

from ggpy.text import metadata as md
from ggpy.text import utf8
from ggpy.text.vocab import SPACE_MARK, Vocab

_WHITESPACE = frozenset(
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)


class WordPieceModel:
    """Encodes text without special tokens; a word that tokens cannot spell is one unknown token.

    In the vocabulary a token that begins a word starts with U+2581, and the others stand bare.
    """

    def __init__(self, vocab: Vocab, metadata: Mapping[str, Any]) -> None:
        self._ids = vocab.ids
        self._unknown = vocab.special.get("unk")
        self._max_length = max(map(len, vocab.tokens))
        self._lowercase = md.read_bool(metadata, md.PREFIX + "normalizer.lowercase", True)
        self._strip_accents = md.read_bool(metadata, md.PREFIX + "normalizer.strip_accents", self._lowercase)

    def encode(self, text: str) -> list[int]:
        """Token ids of an escaped text."""
        if not utf8.is_valid(text):
            text = utf8.repair(text)
        return [i for word in self._words(text) for i in self._encode_word(SPACE_MARK + word)]

    def _words(self, text: str) -> list[str]:
        words = [""]
        for char in text:
            if char in _WHITESPACE:
                words.append("")
                continue
            if self._strip_accents:
                char = unicodedata.normalize("NFD", char)[0]
            category = unicodedata.category(char)
            if char in "\0\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):
                continue
            if self._strip_accents and category[0] == "M":
                continue
            is_alone = category[0] == "P" or (category[0] == "S" and char < "\x7f") or _is_chinese(char)
            if self._lowercase:
                char = char.lower()[0]
            if is_alone:
                words += [char, ""]
            else:
                words[-1] += char
        return [word for word in words if word]

    def _encode_word(self, word: str) -> list[int]:
        ids, start = [], 0
        while start < len(word):
            for end in range(min(len(word), start + self._max_length), start, -1):
                token_id = self._ids.get(word[start:end])
                if token_id is not None:
                    ids.append(token_id)
                    start = end
                    break
            else:
                return [] if self._unknown is None else [self._unknown]
        return ids


def _is_chinese(char: str) -> bool:
    return any(first <= ord(char) <= last for first, last in _CHINESE)
