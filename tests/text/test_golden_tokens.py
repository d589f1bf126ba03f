"""Every case that llama.cpp recorded for real vocabularies and for small ones of each kind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ggpy.gguf import GGUFFile
from ggpy.text import Tokenizer
from ggpy.text.vocab import VocabType
from tests.text.token_data import GOLDEN_OF_MODEL, load

MODELS = [
    name if name == "smollm2:135m" else pytest.param(name, marks=pytest.mark.slow) for name in GOLDEN_OF_MODEL
]


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, model_path: Callable[[str], Path]) -> tuple[Tokenizer, dict[str, Any]]:
    tokenizer = Tokenizer.from_metadata(GGUFFile(model_path(request.param)).metadata)
    return tokenizer, load(GOLDEN_OF_MODEL[request.param])


def test_special_ids(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Ids, flags and the ends of generation are those that llama.cpp finds."""
    tokenizer, golden = model
    vocab, fim = golden["vocab"], golden["vocab"]["fim"]
    expected = [*(vocab[key] for key in ("bos", "eos", "eot", "sep", "pad")), *fim.values()]
    found = [
        tokenizer.bos_id, tokenizer.eos_id, tokenizer.eot_id, tokenizer.sep_id, tokenizer.pad_id,
        tokenizer.fim_prefix_id, tokenizer.fim_suffix_id, tokenizer.fim_middle_id, tokenizer.fim_pad_id,
        tokenizer.fim_rep_id, tokenizer.fim_sep_id,
    ]
    assert list(fim) == ["pre", "suf", "mid", "pad", "rep", "sep"]
    assert found == [None if token_id < 0 else token_id for token_id in expected]
    assert tokenizer.n_vocab == golden["n_vocab"]
    assert tokenizer.vocab_type == VocabType(vocab["vocab_type"])
    assert (tokenizer.add_bos, tokenizer.add_eos) == (vocab["add_bos"], vocab["add_eos"])
    assert tokenizer.eog_ids == set(vocab["eog"])


def test_encode(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Text becomes the same ids, with and without special tokens."""
    tokenizer, golden = model
    wrong = [
        text for text, add, parse, ids in golden["encode"]
        if tokenizer.encode(text, add_special=add, parse_special=parse) != ids
    ]
    assert golden["encode"]
    assert wrong == []


def test_encode_invalid_utf8(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Bytes that are not UTF-8 become the same ids; where llama.cpp aborts, any ids do."""
    tokenizer, golden = model
    for data, add, parse, ids in golden["encode_bytes"]:
        found = tokenizer.encode(bytes.fromhex(data), add_special=add, parse_special=parse)
        assert ids is None or found == ids, data


def test_decode(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Ids become the same bytes, parts of characters included."""
    tokenizer, golden = model
    wrong = [
        ids for ids, remove, unparse, data in golden["detokenize"]
        if tokenizer.decode_bytes(ids, remove_special=remove, unparse_special=unparse).hex() != data
    ]
    assert golden["detokenize"]
    assert wrong == []


def test_token_bytes(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Each token has the same bytes; control tokens have none unless asked for."""
    tokenizer, golden = model
    for token_id, with_special, without in golden["token_to_piece"]:
        assert tokenizer.token_bytes(token_id, special=True).hex() == with_special
        assert tokenizer.token_bytes(token_id, special=False).hex() == without


def test_round_trip(model: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Decoding returns the text, except where the vocabulary cannot tell U+2581 from a space."""
    tokenizer, golden = model
    changed = [
        text for text, add, parse, ids in golden["encode"]
        if not add and not parse and tokenizer.decode(ids) != text
    ]
    assert sorted(changed) == sorted(golden["not_round_trip"])


FAMILIES = load("families")


@pytest.mark.parametrize("pre", FAMILIES["ids"])
def test_pre_tokenizer_families(pre: str, model_path: Callable[[str], Path]) -> None:
    """A real vocabulary read under every pre-tokenizer name gives llama.cpp's ids."""
    metadata = dict(GGUFFile(model_path("smollm2:135m")).metadata) | {"tokenizer.ggml.pre": pre}
    tokenizer = Tokenizer.from_metadata(metadata)
    for text, ids in zip(FAMILIES["texts"], FAMILIES["ids"][pre], strict=True):
        assert ids is None or tokenizer.encode(text, add_special=False) == ids, text


@pytest.fixture(scope="module", params=load("kinds"))
def kind(request: pytest.FixtureRequest) -> tuple[Tokenizer, dict[str, Any]]:
    golden = load("kinds")[request.param]
    metadata = {
        key: np.array(value) if isinstance(value, list) and not isinstance(value[0], str) else value
        for key, value in golden["metadata"].items()
    }
    return Tokenizer.from_metadata(metadata), golden


def test_kinds_encode(kind: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Unigram, SentencePiece with a space prefix, SentencePiece-style BPE and WordPiece give llama.cpp's ids."""
    tokenizer, golden = kind
    for text, is_hex, add, parse, ids in golden["encode"]:
        source = bytes.fromhex(text) if is_hex else text
        assert tokenizer.encode(source, add_special=add, parse_special=parse) == ids, text


def test_kinds_decode(kind: tuple[Tokenizer, dict[str, Any]]) -> None:
    """Their ids become llama.cpp's bytes: leading spaces, BOS and EOS, spaces before punctuation."""
    tokenizer, golden = kind
    for ids, special, data in golden["decode"]:
        assert tokenizer.decode_bytes(ids, remove_special=special, unparse_special=special).hex() == data, ids
    assert tokenizer.eog_ids == set(golden["eog"])
