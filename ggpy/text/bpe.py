"""Byte-pair encoding by merge ranks, on the `tokenizers` library."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ggpy.errors import TokenizerError
from ggpy.text import metadata as md
from ggpy.text import utf8
from ggpy.text.byte_alphabet import to_alphabet
from ggpy.text.pretokenizers import PreTokenizer
from ggpy.text.vocab import SPACE_MARK, Vocab

_KEY = md.PREFIX + "merges"
_PRIVATE_USE = "\ue000"     # stands in for a surrogate while words are cut: neither letter, number nor space
_SURROGATE = re.compile("([\ud800-\udfff])")
_LONG = 1_000       # characters from which on a batch, started in threads of the library, is faster; it frees the GIL


class BytePairModel:
    """Encodes text without special tokens; characters that no token covers are dropped."""

    def __init__(self, vocab: Vocab, metadata: Mapping[str, Any]) -> None:
        from tokenizers import Regex, Tokenizer, pre_tokenizers

        assert vocab.pre is not None
        self._pre: PreTokenizer = vocab.pre
        self._ids = vocab.ids
        self._model = _build_model(vocab.ids, _read_merges(metadata), self._pre)
        self._cut = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self._pre.patterns]
        )
        self._tokenizer = Tokenizer(self._model)
        self._tokenizer.pre_tokenizer = self._cut
        if self._pre.byte_level:
            self._tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
                [self._cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
            )

    def encode(self, text: str) -> list[int]:
        """Token ids of an escaped text."""
        if not utf8.is_valid(text):
            text = utf8.repair(text)
            if not utf8.is_valid(text):
                return self._encode_surrogates(text)
        if self._pre.escape_spaces:
            text = text.replace(" ", SPACE_MARK)
        if self._pre.whole_newlines:
            return [i for part in re.split(r"(\n+)", text) for i in self._encode_part(part)]
        return self._encode_valid(text)

    def _encode_part(self, part: str) -> list[int]:
        if part.startswith("\n") and part in self._ids:
            return [self._ids[part]]
        return self._encode_valid(part)

    def _encode_valid(self, text: str) -> list[int]:
        with _panics_told():
            if len(text) < _LONG:
                ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
            else:
                ids = self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids
        return ids

    def _encode_surrogates(self, text: str) -> list[int]:
        """Surrogates cannot enter the library as text, but their bytes can, once the words are cut."""
        if not self._pre.byte_level:
            return [i for part in _SURROGATE.split(text) for i in self._encode_or_spell(part)]
        cut_text = _SURROGATE.sub(_PRIVATE_USE, text)
        with _panics_told():
            words = [text[start:end] for _, (start, end) in self._cut.pre_tokenize_str(cut_text)]
        return [
            token.id for word in words
            for token in self._model.tokenize(to_alphabet(word.encode("utf-8", "surrogatepass")))
        ]

    def _encode_or_spell(self, part: str) -> list[int]:
        if not _SURROGATE.fullmatch(part):
            return self.encode(part)
        spelled = (f"<0x{byte:02X}>" for byte in part.encode("utf-8", "surrogatepass"))
        return [self._ids[token] for token in spelled if token in self._ids]


@contextmanager
def _panics_told() -> Iterator[None]:
    """Raise TokenizerError where the library gives up, which it does over millions of spaces in a row."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":        # it has no base class but this, and no public name
            raise
        raise TokenizerError(f"the text cannot be cut into words: {error}; a part of it repeats too often") from error


def _read_merges(metadata: Mapping[str, Any]) -> list[tuple[str, str]]:
    lines = md.read_strings(metadata, _KEY)
    if len(set(lines)) != len(lines):
        lines = list(dict.fromkeys(lines))      # the first of equals gives the rank
    # The left part may itself begin with a space.
    merges = [(line[:at], line[at + 1:]) for line in lines if (at := line.find(" ", 1)) > 0]
    if len(merges) != len(lines):
        rank, line = next((i, line) for i, line in enumerate(lines) if line.find(" ", 1) < 0)
        raise TokenizerError(f"{_KEY}: expected two tokens with a space between them, found {line!r} as merge {rank}")
    return merges


def _build_model(ids: dict[str, int], merges: list[tuple[str, str]], pre: PreTokenizer) -> Any:
    from tokenizers import models

    options = {"ignore_merges": pre.ignore_merges, "byte_fallback": not pre.byte_level}
    _check_results(ids, merges)
    try:
        return models.BPE(vocab=ids, merges=merges, **options)
    except Exception as error:
        # A token that is not valid UTF-8 cannot come out of any text, and the library refuses it.
        usable = {token: i for token, i in ids.items() if utf8.is_valid(token)}
        if len(usable) == len(ids):
            raise _explain(ids, merges, error) from error
    _check_results(usable, merges)
    try:
        return models.BPE(vocab=usable, merges=merges, **options)
    except Exception as error:
        raise _explain(usable, merges, error) from error


def _check_results(ids: dict[str, int], merges: list[tuple[str, str]]) -> None:
    """Raises TokenizerError unless every merge makes a token: a result longer than all tokens crashes the library."""
    if not all(left + right in ids for left, right in merges):
        raise _explain(ids, merges, ValueError("the result of a merge is no token"))


def _explain(ids: dict[str, int], merges: list[tuple[str, str]], error: Exception) -> TokenizerError:
    for rank, (left, right) in enumerate(merges):
        for token in (left, right, left + right):
            if token not in ids:
                return TokenizerError(
                    f"{_KEY}: merge {rank} is {left!r} + {right!r}; expected both and their result among the "
                    f"{len(ids):,} tokens, found no {token!r}"
                )
    return TokenizerError(f"{_KEY}: the vocabulary and merges do not form a tokenizer: {error}")
