"""A tokenizer's vocabulary, special ids and flags, checked before anything is built on them.

Defaults and names follow llama.cpp's llama-vocab.cpp, because GGUF files are written against it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from ggpy.errors import TokenizerError
from ggpy.text import metadata as md
from ggpy.text import pretokenizers
from ggpy.text.pretokenizers import PreTokenizer

SPACE_MARK = "\u2581"       # how SentencePiece spells a space


class VocabType(IntEnum):
    """How text becomes tokens; the numbers are llama.cpp's."""

    SPM = 1     # SentencePiece BPE: merges by token score, bytes as fallback
    BPE = 2     # merges by rank, usually over GPT-2's byte alphabet
    WPM = 3     # WordPiece (BERT)
    UGM = 4     # SentencePiece unigram (T5)


class TokenAttr(IntFlag):
    """What a token is. None of them: an undefined token, which has no text."""

    UNKNOWN = 1
    UNUSED = 2
    NORMAL = 4
    CONTROL = 8
    USER_DEFINED = 16
    BYTE = 32
    LSTRIP = 128        # takes the whitespace before it
    RSTRIP = 256        # takes the whitespace after it
    STRUCTURE = 512     # of messages: a control token for the file that is read and shown like a user-defined one


_ATTR_OF_TYPE = np.array(    # by the numbers of tokenizer.ggml.token_type
    [0, TokenAttr.NORMAL, TokenAttr.UNKNOWN, TokenAttr.CONTROL, TokenAttr.USER_DEFINED, TokenAttr.UNUSED,
     TokenAttr.BYTE], np.uint16,
)
_MODELS = {
    "llama": VocabType.SPM, "gpt2": VocabType.BPE, "gemma4": VocabType.BPE, "bert": VocabType.WPM, "t5": VocabType.UGM,
}
_DEFAULT_IDS: dict[str, dict[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "gpt2": {"bos": 11, "eos": 11},
    "bert": {"bos": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
    "gemma4": {},
}
# A later key wins over an earlier one of the same token.
_ID_KEYS = (
    ("bos", "bos_token_id"), ("eos", "eos_token_id"), ("eot", "eot_token_id"), ("eom", "eom_token_id"),
    ("unk", "unknown_token_id"), ("sep", "seperator_token_id"), ("pad", "padding_token_id"),
    ("mask", "mask_token_id"),
    ("fim_prefix", "fim_pre_token_id"), ("fim_suffix", "fim_suf_token_id"), ("fim_middle", "fim_mid_token_id"),
    ("fim_pad", "fim_pad_token_id"), ("fim_rep", "fim_rep_token_id"), ("fim_sep", "fim_sep_token_id"),
    ("fim_prefix", "prefix_token_id"), ("fim_suffix", "suffix_token_id"), ("fim_middle", "middle_token_id"),
)
_BYTE_TOKEN = re.compile(r"<0x[0-9A-Fa-f]{2}>")


@dataclass(slots=True, kw_only=True)
class Vocab:
    """Tokens by id and what the file says about them.

    `tokens` are as the file spells them (escaped text, see utf8.py); `attrs` (n_vocab,) holds TokenAttr bits;
    `scores` (n_vocab,) float32. `special` maps a role ("bos", "fim_prefix", ...) to its id where there is one.
    """

    type: VocabType
    pre: PreTokenizer | None            # of byte-pair vocabularies only
    tokens: list[str]
    ids: dict[str, int]
    attrs: npt.NDArray[np.uint16]
    scores: npt.NDArray[np.float32] | None
    add_bos: bool
    add_eos: bool
    add_sep: bool
    add_space_prefix: bool
    special: dict[str, int] = field(default_factory=dict)
    suppress_tokens: tuple[int, ...] = ()       # never to be generated

    @property
    def clean_spaces(self) -> bool:
        """Whether detokenizing a whole text removes spaces before punctuation."""
        return self.pre.clean_spaces if self.pre else self.type is VocabType.WPM

    def has(self, token_id: int, attr: TokenAttr) -> bool:
        """Whether token `token_id` has any of the bits of `attr`."""
        return bool(self.attrs[token_id] & attr)

    def with_attr(self, attr: TokenAttr) -> list[int]:
        """Ids of the tokens that have any of the bits of `attr`, ascending."""
        found: list[int] = np.flatnonzero(self.attrs & attr).tolist()
        return found


def read_vocab(metadata: Mapping[str, Any]) -> Vocab:
    """The vocabulary in `metadata`. Raises TokenizerError where it is absent, inconsistent or of an unknown kind."""
    model = md.read_str(metadata, md.PREFIX + "model")
    if model not in _MODELS:
        raise TokenizerError(
            f"{md.PREFIX}model: tokenizer {model!r} is not supported; ggpy has {', '.join(sorted(_MODELS))}"
        )
    vocab_type = _MODELS[model]
    tokens = _read_tokens(metadata)
    attrs = _read_attrs(metadata, tokens)
    pre = None
    if vocab_type is VocabType.BPE:
        pre = pretokenizers.find("gemma4" if model == "gemma4" else md.read_str(metadata, md.PREFIX + "pre", ""))
    flags = _read_flags(metadata, vocab_type, pre)
    if pre and pre.whole_newlines:
        flags["add_bos"] = True     # Gemma 4 files may say otherwise, yet the model needs it
    vocab = Vocab(
        type=vocab_type, pre=pre, tokens=tokens, ids=_index(tokens), attrs=attrs,
        scores=md.read_numbers(metadata, md.PREFIX + "scores", np.float32, len(tokens)), **flags,
        special=_read_special(metadata, model, pre, len(tokens)),
        suppress_tokens=md.read_token_ids(metadata, md.PREFIX + "suppress_tokens", len(tokens)),
    )
    _check_added_ids(vocab)
    return vocab


def _read_tokens(metadata: Mapping[str, Any]) -> list[str]:
    tokens = md.read_strings(metadata, md.PREFIX + "tokens")
    if not tokens:
        raise TokenizerError(f"{md.PREFIX}tokens: expected at least one token, found none")
    if "" in tokens:
        tokens = [token or f"[EMPTY_{i}]" for i, token in enumerate(tokens)]
    return tokens


def _index(tokens: list[str]) -> dict[str, int]:
    ids = dict(zip(tokens, range(len(tokens)), strict=True))
    if len(ids) != len(tokens):
        second = next(i for i, token in enumerate(tokens) if ids[token] != i)
        raise TokenizerError(
            f"{md.PREFIX}tokens: expected distinct tokens, found {tokens[second]!r} as both {second} "
            f"and {ids[tokens[second]]}"
        )
    return ids


def _read_attrs(metadata: Mapping[str, Any], tokens: list[str]) -> npt.NDArray[np.uint16]:
    key = md.PREFIX + "token_type"
    types = md.read_numbers(metadata, key, np.int64, len(tokens))
    if types is None:
        return np.full(len(tokens), TokenAttr.NORMAL, np.uint16)
    attrs = _ATTR_OF_TYPE[np.where((types >= 0) & (types < len(_ATTR_OF_TYPE)), types, 0)]
    for i in np.flatnonzero(attrs == TokenAttr.BYTE):
        if not _BYTE_TOKEN.fullmatch(tokens[i]):
            raise TokenizerError(f"{key}: token {i} is a byte; expected its text like '<0x0A>', found {tokens[i]!r}")
    return attrs


def _read_flags(metadata: Mapping[str, Any], vocab_type: VocabType, pre: PreTokenizer | None) -> dict[str, bool]:
    is_spm, is_wpm = vocab_type is VocabType.SPM, vocab_type is VocabType.WPM
    defaults = {
        "add_bos_token": pre.add_bos if pre else is_spm or is_wpm,
        "add_eos_token": vocab_type is VocabType.UGM,
        "add_sep_token": pre.add_sep if pre else is_wpm,
        "add_space_prefix": is_spm,
    }
    return {
        name.removesuffix("_token"): md.read_bool(metadata, md.PREFIX + name, default)
        for name, default in defaults.items()
    }


def _read_special(
    metadata: Mapping[str, Any], model: str, pre: PreTokenizer | None, n_vocab: int
) -> dict[str, int]:
    special = {role: i for role, i in _DEFAULT_IDS[model].items() if i < n_vocab}
    if pre and not pre.has_default_bos:
        special.pop("bos", None)
    for role, name in _ID_KEYS:
        token_id = md.read_token_id(metadata, md.PREFIX + name, n_vocab)
        if token_id is not None:
            special[role] = token_id
    return special


def _check_added_ids(vocab: Vocab) -> None:
    is_wpm = vocab.type is VocabType.WPM        # adds both ids whatever its flags say
    needed = {"bos": vocab.add_bos or is_wpm, "eos": vocab.add_eos, "sep": is_wpm}
    for role, is_added in needed.items():
        if is_added and role not in vocab.special:
            key = "seperator_token_id" if role == "sep" else f"{role}_token_id"
            raise TokenizerError(
                f"{md.PREFIX}{key}: expected an id, because this tokenizer adds that token to every text; found nothing"
            )
