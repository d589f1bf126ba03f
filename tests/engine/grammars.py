"""A vocabulary small enough to ask for every token whether a constraint allows it."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured.constraint import Constraint, Grammars
from ggpy.text import Tokenizer
from tests.text.token_data import CONTROL, NORMAL, USER_DEFINED, byte_bpe, sentencepiece

END, CALL, THINK = 262, 263, 264
PIECES = ["he", "ll", "hell", "hello", "Ġhello", "<bos>", "<|im_end|>", "<call>", "</think>", '{"', '":', '"}', "12",
          "true", "]}", ">x", ">1", "null", '",', "Ġ{", "ab"]


@cache
def tokenizer() -> Tokenizer:
    """All bytes, then PIECES from id 256 on; "<call>" is a control token, "</think>" is user-defined."""
    metadata = byte_bpe()
    types = [NORMAL] * 261 + [CONTROL, CONTROL, CONTROL, USER_DEFINED] + [NORMAL] * (len(PIECES) - 9)
    tokens = [*metadata["tokenizer.ggml.tokens"][:256], *PIECES]
    return Tokenizer.from_metadata(byte_bpe(tokens=tokens, token_type=np.array(types, np.int32)))


@cache
def grammars() -> Grammars:
    return Grammars(tokenizer())


@cache
def sentencepiece_grammars() -> Grammars:
    return Grammars(Tokenizer.from_metadata(sentencepiece()))


def start(kind: str, source: str = "", after: tuple[str, ...] = ()) -> Constraint:
    return grammars().start(ConstraintSpec(kind, source, after))     # type: ignore[arg-type]


def encode(text: str) -> list[int]:
    return tokenizer().encode(text, add_special=False)


def allowed(constraint: Constraint, drafts: Sequence[int] = ()) -> list[set[int]]:
    """The tokens of each row of its masks."""
    masks = np.full((1 + len(drafts), grammars().n_words), 0x55555555, np.int32)
    constraint.fill(masks, drafts)
    return [set(np.flatnonzero(bits(mask)).tolist()) for mask in masks]


def bits(mask: NDArray[np.int32]) -> NDArray[np.uint8]:
    return np.unpackbits(mask.view(np.uint8), bitorder="little")


def texts(constraint: Constraint) -> set[str]:
    """What may come next, as text."""
    return {tokenizer().token_bytes(token).decode("utf-8", "backslashreplace") for token in allowed(constraint)[0]}


def accepts(kind: str, source: str, text: str) -> bool:
    """Whether `text` as a whole is an answer that the constraint allows; drafts and masks have to say the same."""
    constraint, tokens = start(kind, source), encode(text)
    n_valid = len(constraint.keep_valid(tokens))
    rows = allowed(constraint, tokens)
    for i, token in enumerate(tokens):
        assert (token in rows[i]) == (i < n_valid)
        if i == n_valid:
            return False
        constraint.accept(token)
    return END in allowed(constraint)[0]
