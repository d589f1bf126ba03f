"""Metadata that cannot be a tokenizer raises an error that names the key, what was found and what was expected."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ggpy.errors import TokenizerError
from ggpy.text import Tokenizer
from tests.text.token_data import BYTE, byte_bpe, load, sentencepiece

TOKENS = byte_bpe()["tokenizer.ggml.tokens"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": None}, r"model: expected a string, found nothing"),
        ({"model": 3}, r"model: expected a string, found int 3"),
        ({"model": "rwkv"}, r"model: tokenizer 'rwkv' is not supported; ggpy has bert, gemma4, gpt2, llama, t5"),
        ({"pre": 1}, r"pre: expected a string, found int 1"),
        ({"tokens": None}, r"tokens: expected an array of strings, found nothing"),
        ({"tokens": "abc"}, r"tokens: expected an array of strings, found str"),
        ({"tokens": np.arange(3)}, r"tokens: expected an array of strings, found int in it"),
        ({"tokens": []}, r"tokens: expected at least one token, found none"),
        ({"tokens": [*TOKENS[:-1], "he"]}, r"tokens: expected distinct tokens, found 'he' as both 256 and 263"),
        ({"token_type": np.ones(3, np.int32)}, r"token_type: expected 264 values, one per token, found 3"),
        ({"token_type": "x"}, r"token_type: expected an array of numbers, found str 'x'"),
        ({"token_type": np.full(264, BYTE)}, r"token_type: token 0 is a byte; expected its text like '<0x0A>'"),
        ({"scores": np.ones(265, np.float32)}, r"scores: expected 264 values, one per token, found 265"),
        ({"bos_token_id": 264}, r"bos_token_id: expected a token id below 264, found int 264"),
        ({"bos_token_id": -5}, r"bos_token_id: expected a token id below 264, found int -5"),
        ({"suppress_tokens": np.array([3, 264])}, r"suppress_tokens\[1\]: expected a token id below 264, found 264"),
        ({"suppress_tokens": np.array([-1])}, r"suppress_tokens\[0\]: expected a token id below 264, found -1"),
        ({"suppress_tokens": np.array([1.0])}, r"suppress_tokens: expected an array of token ids, found ndarray"),
        ({"suppress_tokens": 7}, r"suppress_tokens: expected an array of token ids, found int 7"),
        ({"eos_token_id": "2"}, r"eos_token_id: expected a token id below 264, found str '2'"),
        ({"fim_pre_token_id": True}, r"fim_pre_token_id: expected a token id below 264, found bool True"),
        ({"add_bos_token": 1}, r"add_bos_token: expected true or false, found int 1"),
        ({"merges": None}, r"merges: expected an array of strings, found nothing"),
        ({"merges": ["h e", "xy"]}, r"merges: expected two tokens with a space between them, found 'xy' as merge 1"),
        ({"merges": ["h e", "x y"]}, r"merges: merge 1 is 'x' \+ 'y'; expected .* found no 'xy'"),
        ({"merges": ["h e", "zz y"]}, r"merges: merge 1 is 'zz' \+ 'y'; expected .* found no 'zz'"),
        ({"merges": ["h e", f"{max(TOKENS, key=len)} a"]}, r"merges: merge 1 is .* \+ 'a'; expected .* found no"),
    ],
)
def test_byte_pair_metadata(changes: dict[str, Any], message: str) -> None:
    """Each of these is a file that someone could send."""
    with pytest.raises(TokenizerError, match="tokenizer.ggml." + message):
        Tokenizer.from_metadata(byte_bpe(**changes))


TOKEN_IDS = [f"{name}_token_id" for name in (
    "bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask", "fim_pre", "fim_suf", "fim_mid", "fim_pad",
    "fim_rep", "fim_sep", "prefix", "suffix", "middle")]
KIND_OF_KEY = {
    **dict.fromkeys(("model", "pre"), "string"), **dict.fromkeys(("tokens", "merges"), "strings"),
    **dict.fromkeys(("token_type", "scores", "precompiled_charsmap", "suppress_tokens"), "numbers"),
    **dict.fromkeys(TOKEN_IDS, "integer"),
    **dict.fromkeys(("add_bos_token", "add_eos_token", "add_sep_token", "add_space_prefix", "remove_extra_whitespaces",
                     "normalizer.lowercase", "normalizer.strip_accents"), "flag"),
}
NUMBERS = st.lists(st.integers(0, 100), min_size=1).map(np.array)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(), "integer": st.integers(0, 100), "flag": st.booleans(), "float": st.floats(),
    "strings": st.lists(st.text(), min_size=1), "numbers": NUMBERS, "arrays": st.lists(NUMBERS, min_size=1),
    "flags": st.lists(st.booleans(), min_size=1).map(np.array),
}


@pytest.mark.parametrize("key", KIND_OF_KEY)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_a_value_of_the_wrong_type_is_named(key: str, data: st.DataObject) -> None:
    """Whatever stands at a key that a tokenizer reads: its key, what was expected and what was found."""
    values = st.one_of([strategy for kind, strategy in VALUES.items() if kind != KIND_OF_KEY[key]])
    base = _unigram() if key in ("precompiled_charsmap", "remove_extra_whitespaces") else byte_bpe()
    if key.startswith("normalizer."):
        base = dict(load("kinds")["wordpiece"]["metadata"])
    full_key = f"tokenizer.ggml.{key}"
    with pytest.raises(TokenizerError, match=rf"^{re.escape(full_key)}: expected .+ found "):
        Tokenizer.from_metadata(base | {full_key: data.draw(values)})


def test_bos_that_is_added_must_exist() -> None:
    """A vocabulary too small for the default BOS id, which the file wants in front of every text."""
    metadata = byte_bpe(tokens=["a", "b"], token_type=None, merges=[], bos_token_id=None, eos_token_id=None)
    with pytest.raises(TokenizerError, match=r"bos_token_id: expected an id, .* found nothing"):
        Tokenizer.from_metadata(metadata)


def test_minus_one_stands_for_no_token() -> None:
    """Converters write it, also as an unsigned number."""
    for absent in (-1, 0xFFFFFFFF):
        tokenizer = Tokenizer.from_metadata(byte_bpe(padding_token_id=absent))
        assert tokenizer.pad_id is None


def test_sentencepiece_needs_scores() -> None:
    """Without them no merge comes before another."""
    with pytest.raises(TokenizerError, match=r"scores: expected one score per token, found nothing"):
        Tokenizer.from_metadata(sentencepiece(scores=None))


def test_scores_that_are_no_numbers_do_not_crash() -> None:
    """NaN and infinity give some order."""
    scores = sentencepiece()["tokenizer.ggml.scores"].copy()
    scores[-6:] = [np.nan, np.inf, -np.inf, np.nan, np.nan, np.inf]
    tokenizer = Tokenizer.from_metadata(sentencepiece(scores=scores))
    assert tokenizer.decode(tokenizer.encode("abc abc", add_special=False)) == "abc abc"


def test_tokens_that_are_not_utf8() -> None:
    """They keep their bytes, and the rest of the vocabulary works."""
    tokens = [*TOKENS[:-1], b"\xff\xfe".decode("utf-8", "surrogateescape")]
    tokenizer = Tokenizer.from_metadata(byte_bpe(tokens=tokens))
    assert tokenizer.token_bytes(263) == b"\xff\xfe"
    assert tokenizer.encode("hello", add_special=False) == [259]


def test_token_outside_the_byte_alphabet() -> None:
    """It is spelled as llama.cpp does, since no byte stands behind it."""
    types = byte_bpe()["tokenizer.ggml.token_type"].copy()
    types[-1] = 1
    tokenizer = Tokenizer.from_metadata(byte_bpe(tokens=[*TOKENS[:-1], "a€"], token_type=types))
    assert tokenizer.token_bytes(263) == "a[UNK_BYTE_0xe282aca€]".encode()


def test_empty_tokens_get_a_name() -> None:
    """Several may be empty without being the same token."""
    tokenizer = Tokenizer.from_metadata(byte_bpe(tokens=[*TOKENS[:-3], "", "", "<tool>"]))
    assert tokenizer.token_bytes(261) == b"[EMPTY_261]"
    assert tokenizer.token_bytes(262) == b"[EMPTY_262]"


@pytest.mark.parametrize("size", [0, 3, 4, 100])
def test_charsmap_cut_short(size: int) -> None:
    """The rules say how long they are."""
    metadata = _unigram()
    charsmap = metadata["tokenizer.ggml.precompiled_charsmap"][:size]
    with pytest.raises(TokenizerError, match=r"precompiled_charsmap: expected"):
        Tokenizer.from_metadata(metadata | {"tokenizer.ggml.precompiled_charsmap": charsmap}).encode("a")


def test_charsmap_with_wild_links() -> None:
    """A link or a replacement outside the rules is an error, not a crash, and endless loops cannot form."""
    metadata = _unigram()
    rng = np.random.Generator(np.random.PCG64(5))
    original = metadata["tokenizer.ggml.precompiled_charsmap"]
    outcomes: set[type] = set()
    for _ in range(200):
        charsmap = original.copy()
        charsmap[rng.integers(4, len(charsmap), 40)] = rng.integers(0, 256, 40)
        tokenizer = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.precompiled_charsmap": charsmap})
        try:
            outcomes.add(type(tokenizer.encode("the ﬁne ½ A\u030a e\u0301")))
        except TokenizerError:
            outcomes.add(TokenizerError)
    assert outcomes <= {list, TokenizerError}


def _unigram() -> dict[str, Any]:
    metadata = dict(load("kinds")["unigram"]["metadata"])
    for key in ("precompiled_charsmap", "token_type", "scores"):
        metadata[f"tokenizer.ggml.{key}"] = np.array(metadata[f"tokenizer.ggml.{key}"])
    return metadata
