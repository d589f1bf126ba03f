"""Token ids back to text, whole or as a stream."""

import codecs
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from ggpy.errors import TokenizerError, shown
from ggpy.text.byte_alphabet import from_alphabet
from ggpy.text.vocab import SPACE_MARK, TokenAttr, Vocab, VocabType

# plain numbers: a flag takes a microsecond to compare, and a vocabulary has very many tokens
_SPECIAL = int(TokenAttr.CONTROL | TokenAttr.UNKNOWN)
_AS_IT_STANDS = int(_SPECIAL | TokenAttr.USER_DEFINED)
_NORMAL, _BYTE = int(TokenAttr.NORMAL), int(TokenAttr.BYTE)
_SPACE_BEFORE_PUNCTUATION = re.compile(rb" (?=[?!.,])")
_SPACE_BEFORE_CONTRACTION = re.compile(rb" (?='(?:[sm]|re|ve))")


class Detokenizer:
    """The bytes that tokens stand for."""

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self._pieces: dict[int, bytes] = {}     # of tokens that were asked for
        self._plain: dict[int, bytes] = {}      # the same, where control and unknown tokens have none

    def token_bytes(self, token_id: int, special: bool = True) -> bytes:
        """The bytes of one token; none for control and unknown tokens unless `special`.

        Raises TokenizerError for an id outside the vocabulary.
        """
        pieces = self._pieces if special else self._plain
        piece = pieces.get(token_id)
        if piece is None:
            last = len(self._vocab.tokens) - 1
            if not 0 <= token_id <= last:
                raise TokenizerError(f"token {shown(token_id)}: expected an id from 0 to {last:,}")
            is_hidden = not special and int(self._vocab.attrs[token_id]) & _SPECIAL
            piece = pieces[token_id] = b"" if is_hidden else self._spell(token_id)
        return piece

    def _spell(self, token_id: int) -> bytes:
        text, attr = self._vocab.tokens[token_id], int(self._vocab.attrs[token_id])
        if attr & _AS_IT_STANDS:
            return text.encode("utf-8", "surrogateescape")
        if attr & _NORMAL:
            pre = self._vocab.pre
            if self._vocab.type is VocabType.BPE and pre and not pre.escape_spaces:
                return from_alphabet(text)
            return text.replace(SPACE_MARK, " ").encode("utf-8", "surrogateescape")
        return bytes([int(text[3:5], 16)]) if attr & _BYTE else b""

    def decode(
        self, ids: Iterable[int], *, remove_special: bool, unparse_special: bool, clean_spaces: bool
    ) -> bytes:
        """The bytes of a whole text: without the space that encoding put in front, cleaned if asked for."""
        vocab, ids = self._vocab, list(ids)
        strip_space = vocab.add_space_prefix
        if remove_special and vocab.add_bos and ids[:1] == [vocab.special.get("bos")]:
            strip_space = False
            ids = ids[1:]
        if remove_special and vocab.add_eos and ids[-1:] == [vocab.special.get("eos")]:
            ids = ids[:-1]
        pieces = [self.token_bytes(i, unparse_special) for i in ids]
        if strip_space and pieces:
            pieces[0] = pieces[0].removeprefix(b" ")
        data = b"".join(pieces)
        return _clean_spaces(data) if clean_spaces else data


def _clean_spaces(data: bytes) -> bytes:
    data = _SPACE_BEFORE_PUNCTUATION.sub(b"", data)
    data = data.replace(b" ' ", b"'")
    return _SPACE_BEFORE_CONTRACTION.sub(b"", data)


class PieceSource(Protocol):
    """Whatever spells token ids: a Tokenizer or a Detokenizer."""

    def token_bytes(self, token_id: int, special: bool = ...) -> bytes:
        """The bytes of one token."""
        ...


class StreamDecoder:
    """Text of a generation as its tokens arrive; holds back the bytes of a character until it is complete.

    All that `push` and `finish` return, joined, is the bytes of the tokens decoded at once, invalid ones as U+FFFD.
    A generation continues a text, so no leading space is taken off and no spaces are cleaned.
    """

    def __init__(self, source: PieceSource, *, special: bool = False) -> None:
        self._source = source
        self._special = special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """The text that is certain once `token_id` has been read; often its own, sometimes none yet."""
        return self._decoder.decode(self._source.token_bytes(token_id, self._special))

    def extend(self, ids: Sequence[int]) -> str:
        """`push` for several tokens."""
        return "".join(map(self.push, ids))

    def finish(self) -> str:
        """What was held back, as U+FFFD; the decoder then starts afresh."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
