"""What must hold for any text and any ids."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.text import StreamDecoder, Tokenizer
from tests.text.token_data import byte_bpe, load, sentencepiece


def _kind(name: str) -> dict[str, Any]:
    return {
        key: np.array(value) if isinstance(value, list) and not isinstance(value[0], str) else value
        for key, value in load("kinds")[name]["metadata"].items()
    }


_BASE = sentencepiece()
SENTENCEPIECE_CROSSING = sentencepiece(     # "b a" is a token
    tokens=[*_BASE["tokenizer.ggml.tokens"], "b▁", "b▁a", "aa"], token_type=None,
    scores=np.append(_BASE["tokenizer.ggml.scores"], np.array([-0.5, -0.1, -1.0], np.float32)),
)
BYTE_BPE = Tokenizer.from_metadata(byte_bpe())
TOKENIZERS = {
    "byte_bpe": BYTE_BPE, "qwen2": Tokenizer.from_metadata(byte_bpe(pre="qwen2")),
    "deepseek": Tokenizer.from_metadata(byte_bpe(pre="deepseek-v3")),
    "sentencepiece": Tokenizer.from_metadata(sentencepiece()),
    "crossing": Tokenizer.from_metadata(SENTENCEPIECE_CROSSING),
    **{name: Tokenizer.from_metadata(_kind(name)) for name in ("unigram", "wordpiece", "gemma4")},
}
TEXTS = st.text(st.characters(codec="utf-8")) | st.text("ab hello'S<|im_end>\n\r\t 12é你😀\u0301\u3000")
BYTE_IDS = st.lists(st.integers(0, 255) | st.sampled_from([*"你é😀".encode(), 256, 260, 261, 263]))


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(data=st.binary() | TEXTS.map(str.encode), parse=st.booleans())
def test_any_bytes_can_be_encoded(name: str, data: bytes, parse: bool) -> None:
    """Every id is in the vocabulary and can be decoded again."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(data, parse_special=parse)
    assert all(0 <= token_id < tokenizer.n_vocab for token_id in ids)
    tokenizer.decode(ids)


@settings(max_examples=300, deadline=None)
@given(text=TEXTS, parse=st.booleans(), name=st.sampled_from(["byte_bpe", "qwen2", "deepseek"]))
def test_byte_level_vocabularies_lose_nothing(text: str, parse: bool, name: str) -> None:
    """The ids of valid UTF-8 spell exactly its bytes."""
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text, add_special=False, parse_special=parse)
    assert tokenizer.decode_bytes(ids, clean_spaces=False) == text.encode()


@settings(max_examples=200, deadline=None)
@given(text=st.text())
def test_a_string_encodes_like_its_bytes(text: str) -> None:
    """Also one with lone surrogates, which JSON can carry."""
    assert BYTE_BPE.encode(text) == BYTE_BPE.encode(text.encode("utf-8", "surrogatepass"))


def merged_one_by_one(text: str, metadata: dict[str, Any]) -> list[int]:
    """SentencePiece's rule without queue, cache or splitting: look for the best pair, merge it, look again."""
    tokens = metadata["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens, metadata["tokenizer.ggml.scores"].tolist(), strict=True))
    symbols = list(text.replace(" ", "▁"))
    while pairs := [(-scores[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in scores]:
        _, i = min(pairs)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    return [
        i for symbol in symbols
        for i in ([tokens.index(symbol)] if symbol in scores else [3 + byte for byte in symbol.encode()])
    ]


@settings(max_examples=300, deadline=None)
@given(text=st.text("aabbcé ▁"), crossing=st.booleans())
def test_sentencepiece_merges_by_its_plain_rule(text: str, crossing: bool) -> None:
    """Cutting at spaces and looking words up changes no id, whether or not tokens reach across spaces."""
    metadata = SENTENCEPIECE_CROSSING if crossing else sentencepiece()
    tokenizer = TOKENIZERS["crossing" if crossing else "sentencepiece"]
    expected = merged_one_by_one(" " + text, metadata) if text else []
    assert tokenizer.encode(text, add_special=False) == expected


@settings(max_examples=300, deadline=None)
@given(ids=BYTE_IDS, special=st.booleans())
def test_streaming_is_decoding(ids: list[int], special: bool) -> None:
    """All pieces of a stream joined are the text of all ids at once."""
    decoder = StreamDecoder(BYTE_BPE, special=special)
    streamed = "".join(decoder.push(token_id) for token_id in ids) + decoder.finish()
    assert streamed == BYTE_BPE.decode(ids, unparse_special=special, clean_spaces=False)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_characters="\ufffd")))
def test_streaming_never_shows_half_a_character(text: str) -> None:
    """Byte by byte, each piece continues the text; U+FFFD stands only for bytes that can't become a character."""
    decoder = StreamDecoder(BYTE_BPE)
    seen = ""
    for byte in text.encode():
        seen += decoder.push(byte)
        assert text.startswith(seen)
    assert seen == text
    assert decoder.finish() == ""


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS | st.text("▁ ab"), parse=st.booleans())
def test_a_text_has_the_least_number_of_tokens_or_more(name: str, text: str, parse: bool) -> None:
    """Whatever is merged or taken by others."""
    tokenizer = TOKENIZERS[name]
    assert tokenizer.least_tokens(text) <= len(tokenizer.encode(text, add_special=False, parse_special=parse))


def test_the_least_number_of_tokens_is_near_where_none_is_long() -> None:
    """Whitespace is left out of the count, for runs of it may be one token."""
    longest = max(len(BYTE_BPE.token_bytes(i)) for i in range(BYTE_BPE.n_vocab))
    assert BYTE_BPE.least_tokens("x " * 5 * longest) == 5
