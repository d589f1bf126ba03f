"""The vocabulary of a model as llguidance wants it."""

from __future__ import annotations

from collections.abc import Sequence

from llguidance import LLTokenizer

from ggpy.errors import GrammarError
from ggpy.text import Tokenizer
from ggpy.text.vocab import VocabType

MARK = "\x02"       # a character that no token joins with others


class GrammarTokens:
    """The bytes of every token of `tokenizer`, and llguidance's index of them.

    Building it reads the whole vocabulary, which takes some tenths of a second. Raises GrammarError for a tokenizer
    whose tokens do not spell text byte by byte, or that has no token to end a text.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.vocab_type is VocabType.WPM or not tokenizer.eog_ids:
            raise GrammarError("answers of this model cannot be constrained: its tokens do not spell text byte by "
                               "byte, or none ends a text")
        self.tokenizer = tokenizer
        self.n_vocab = tokenizer.n_vocab
        self.pieces = [tokenizer.token_bytes(i) for i in range(tokenizer.n_vocab)]
        self.special = frozenset(i for i in range(tokenizer.n_vocab) if not tokenizer.token_bytes(i, special=False))
        eos = sorted(tokenizer.eog_ids, key=lambda i: i != tokenizer.eos_id)
        self.index = LLTokenizer(_Wrapper(self, eos[0]), n_vocab=self.n_vocab, eos_token=eos)   # type: ignore[arg-type]

    def encode(self, text: str | bytes, parse_special: bool = False) -> list[int]:
        """The tokens of a text that goes on from another one."""
        encode = self.tokenizer.encode
        if not (self.tokenizer.vocab_type is VocabType.SPM and self.tokenizer.add_space_prefix):
            return encode(text, add_special=False, parse_special=parse_special)
        # the space that this tokenizer puts before every text comes before the mark
        before = encode(MARK, add_special=False)
        marked = MARK.encode() + text if isinstance(text, bytes) else MARK + text
        return encode(marked, add_special=False, parse_special=parse_special)[len(before):]

    def token_id(self, text: str) -> int | None:
        """The token that a grammar calls "<text>", its spelling, or "<[id]>"."""
        if text.startswith("<[") and text.endswith("]>") and text[2:-2].isdecimal() and len(text) < 16:
            id_ = int(text[2:-2])
            return id_ if id_ < self.n_vocab else None
        return self.tokenizer.token_id(text)


class _Wrapper:
    """What llguidance asks of a tokenizer."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokens: GrammarTokens, eos: int) -> None:
        self.eos_token_id = eos
        self.tokens: Sequence[bytes] = tokens.pieces
        self.special_token_ids = sorted(tokens.special)
        self._encode = tokens.encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text)
