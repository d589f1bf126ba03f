"""What callers rely on, in vocabularies small enough to check by hand."""

import logging

import numpy as np
import pytest

from ggpy.errors import TokenizerError
from ggpy.text import Tokenizer
from tests.text.token_data import CONTROL, NORMAL, byte_bpe, sentencepiece

HELLO, SPACE_HELLO, BOS, IM_END, TOOL = 259, 260, 261, 262, 263


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(byte_bpe())


def test_merges_apply_by_rank_within_words(tokenizer: Tokenizer) -> None:
    """"hello" is one token; a space belongs to the word after it."""
    assert tokenizer.encode("hello hello", add_special=False) == [HELLO, SPACE_HELLO]


def test_a_long_text_has_the_tokens_of_a_short_one(tokenizer: Tokenizer) -> None:
    """The library encodes it in a way of its own."""
    assert tokenizer.encode("hello" + " hello" * 2000, add_special=False) == [HELLO, *[SPACE_HELLO] * 2000]


def test_special_tokens_are_text_unless_parsed(tokenizer: Tokenizer) -> None:
    """A user who writes "<|im_end|>" does not end the turn."""
    as_text = tokenizer.encode("hello<|im_end|>", add_special=False)
    assert as_text == [HELLO, *b"<|im_end|>"]
    assert tokenizer.encode("hello<|im_end|>", add_special=False, parse_special=True) == [HELLO, IM_END]


def test_user_defined_tokens_are_always_found(tokenizer: Tokenizer) -> None:
    """They are ordinary vocabulary that merges cannot reach."""
    assert tokenizer.encode("hello<tool>", add_special=False) == [HELLO, TOOL]


def test_bos_is_added_once_asked_for(tokenizer: Tokenizer, caplog: pytest.LogCaptureFixture) -> None:
    """add_special puts BOS in front, and a text that already has one is reported."""
    assert tokenizer.encode("hello") == [BOS, HELLO]
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "ggpy"):
        assert tokenizer.encode("<bos>hello", parse_special=True) == [BOS, BOS, HELLO]
    assert "two of them" in caplog.text


def test_empty_text(tokenizer: Tokenizer) -> None:
    """Nothing but what add_special adds."""
    assert tokenizer.encode("", add_special=False) == []
    assert tokenizer.encode("") == [BOS]
    assert tokenizer.decode([]) == ""


def test_end_of_generation_is_known_by_text_and_by_key(tokenizer: Tokenizer) -> None:
    """"<|im_end|>" ends a turn although no key says so."""
    assert tokenizer.eot_id == IM_END
    assert tokenizer.eog_ids == {IM_END}
    assert tokenizer.eom_id is None


def test_suppressed_tokens_are_those_of_the_file(tokenizer: Tokenizer) -> None:
    """Plain ints, in the file's order; most files have none."""
    assert tokenizer.suppress_tokens == ()
    metadata = byte_bpe(suppress_tokens=np.array([TOOL, HELLO], np.int32))
    suppressed = Tokenizer.from_metadata(metadata).suppress_tokens
    assert suppressed == (TOOL, HELLO)
    assert {type(token_id) for token_id in suppressed} == {int}


def test_eot_prefers_a_token_that_is_not_padding() -> None:
    """Where several tokens could end a turn, the padding token comes last."""
    metadata = byte_bpe(padding_token_id=IM_END)
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "<|endoftext|>"]
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], NORMAL)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.eot_id == 264
    assert tokenizer.eog_ids == {IM_END, 264}
    assert tokenizer.token_bytes(264, special=False) == b""      # a control token, whatever its type says


def test_harmony_end_is_no_end_of_generation() -> None:
    """With "<|return|>" and "<|call|>" in the vocabulary, "<|end|>" only ends a message."""
    extra = ["<|end|>", "<|return|>", "<|call|>", "<|message|>"]
    metadata = byte_bpe()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], *extra]
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], [CONTROL] * 4)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.eog_ids == {IM_END, 265, 266}
    assert tokenizer.token_bytes(264, special=False) == b"<|end|>"
    assert tokenizer.token_bytes(267, special=False) == b"<|message|>"


def test_phi3_special_tokens_take_the_whitespace_after_them() -> None:
    """Files do not say so; the model's name does."""
    metadata = byte_bpe() | {"general.name": "Phi-3 mini"}
    ids = Tokenizer.from_metadata(metadata).encode("<|im_end|> \n hello", add_special=False, parse_special=True)
    assert ids == [IM_END, HELLO]


def test_mask_token_takes_the_whitespace_before_it() -> None:
    """As jina-embeddings-v2-code needs."""
    metadata = byte_bpe(pre="jina-v2-code", seperator_token_id=IM_END)
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"][:-1], "<mask>"]
    ids = Tokenizer.from_metadata(metadata).encode("hello  <mask>", add_special=False, parse_special=True)
    assert ids == [HELLO, TOOL]


def test_longest_special_token_wins_over_the_whole_text() -> None:
    """A longer token further right beats a shorter one that it overlaps."""
    metadata = byte_bpe()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "xab", "abcde"]
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], [CONTROL, CONTROL])
    ids = Tokenizer.from_metadata(metadata).encode("xabcde", add_special=False, parse_special=True)
    assert ids == [ord("x"), 265]


def test_control_tokens_are_text_inside_literals(tokenizer: Tokenizer) -> None:
    """Also such as only reach into one; tokens of the user's are found there as anywhere."""
    text = "<|im_end|><|im_end|>hello<tool>"

    def encode(*literals: tuple[int, int]) -> list[int]:
        return tokenizer.encode(text, add_special=False, parse_special=True, literals=literals)

    spelled = [*b"<|im_end|>"]
    assert encode() == [IM_END, IM_END, HELLO, TOOL]
    assert encode((0, 10)) == [*spelled, IM_END, HELLO, TOOL]
    assert encode((10, 20)) == [IM_END, *spelled, HELLO, TOOL]
    assert encode((9, 11)) == encode((0, 10), (10, 31)) == [*spelled, *spelled, HELLO, TOOL]
    assert encode((10, 10)) == [IM_END, IM_END, HELLO, TOOL]


def test_whitespace_that_a_token_takes_stays_where_it_is_literal() -> None:
    """The token there is none."""
    tokenizer = Tokenizer.from_metadata(byte_bpe() | {"general.name": "Phi-3 mini"})
    text = "<|im_end|> hello<|im_end|> hello"
    ids = tokenizer.encode(text, add_special=False, parse_special=True, literals=[(16, 26)])
    assert ids == [IM_END, HELLO, *b"<|im_end|>", SPACE_HELLO]


def test_where_control_tokens_are_spelled() -> None:
    """Overlapping spellings are one span, neighbours are two; those of the user are none."""
    metadata = byte_bpe()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "xab", "abcde"]
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], [CONTROL, CONTROL])
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.control_spans("..xabcde<bos><bos><tool>abc") == [(2, 8), (8, 13), (13, 18)]
    assert tokenizer.control_spans("xab<bos>abcde", kept=("xab",)) == [(3, 8), (8, 13)]
    assert tokenizer.control_spans("hello") == []


@pytest.mark.parametrize(("text", "parts"), [
    ("hello<|im_", ["<|im_"]), ("end|>hello", ["end|>"]), (" |im_end| ", ["|im_end|"]), ("a <|im_end \n", ["<|im_end"]),
    ("> <", [">", "<"]), ("im", []), ("bos", []), ("< a >", []), ("os> <b", ["os>", "<b"]), ("", []), (" ", []),
])
def test_where_parts_of_control_tokens_are_spelled(tokenizer: Tokenizer, text: str, parts: list[str]) -> None:
    """At the ends, where a neighbour could complete them, blanks trimmed or not; words are no parts."""
    assert [text[slice(*span)] for span in tokenizer.control_spans(text)] == parts


def test_spaces_before_punctuation_are_cleaned_in_whole_texts(tokenizer: Tokenizer) -> None:
    """GPT-2's default, which callers can switch off."""
    ids = list(b"it 's ok .")
    assert tokenizer.decode(ids) == "it's ok."
    assert tokenizer.decode(ids, clean_spaces=False) == "it 's ok ."


def test_undecodable_bytes_are_replaced(tokenizer: Tokenizer) -> None:
    """decode never raises for bytes; decode_bytes keeps them."""
    assert tokenizer.decode([0xE4, 0xBD]) == "\ufffd"
    assert tokenizer.decode_bytes([0xE4, 0xBD]) == b"\xe4\xbd"


def test_unknown_id_is_an_error(tokenizer: Tokenizer) -> None:
    """Also a negative one, which Python would index from the end."""
    for token_id in (264, -1):
        with pytest.raises(TokenizerError, match=f"token {token_id}: expected an id from 0 to 263"):
            tokenizer.decode([token_id])


def test_token_id_by_spelling(tokenizer: Tokenizer) -> None:
    """The vocabulary can be asked for a token's text."""
    assert tokenizer.token_id("<|im_end|>") == IM_END
    assert tokenizer.token_id("<|im_start|>") is None


def test_sentencepiece_merges_the_highest_score_first() -> None:
    """"abc": "bc" scores above "ab", so it wins although "ab" stands further left."""
    tokenizer = Tokenizer.from_metadata(sentencepiece(add_space_prefix=False, add_bos_token=False))
    assert tokenizer.encode("abc") == [tokenizer.token_id("a"), tokenizer.token_id("bc")]


def test_sentencepiece_prefers_the_leftmost_of_equal_scores() -> None:
    """"aaa" merges its first two characters."""
    scores = sentencepiece()["tokenizer.ggml.scores"]
    tokens = sentencepiece()["tokenizer.ggml.tokens"]
    metadata = sentencepiece(
        tokens=[*tokens, "aa"], scores=np.append(scores, np.float32(-1)), token_type=None, add_space_prefix=False,
    )
    assert Tokenizer.from_metadata(metadata).encode("aaa", add_special=False) == [267, 260]


def test_sentencepiece_space_prefix_and_byte_fallback() -> None:
    """The text gets a leading space, and again after a special token; decoding takes the first one off."""
    tokenizer = Tokenizer.from_metadata(sentencepiece())
    space_ab = 266
    assert tokenizer.token_id("▁ab") == space_ab
    assert tokenizer.encode("ab") == [1, space_ab]
    assert tokenizer.encode("ab</s>ab", add_special=False, parse_special=True) == [space_ab, 2, space_ab]
    assert tokenizer.encode("é", add_special=False) == [tokenizer.token_id("▁"), 3 + 0xC3, 3 + 0xA9]
    assert tokenizer.decode([space_ab, space_ab]) == "ab ab"


def test_words_are_split_only_where_no_token_crosses() -> None:
    """A token with a space inside is found although words are looked up one by one."""
    base = sentencepiece()
    metadata = sentencepiece(
        tokens=[*base["tokenizer.ggml.tokens"], "b▁", "b▁a"], token_type=None,
        scores=np.append(base["tokenizer.ggml.scores"], np.array([-0.5, -0.1], np.float32)), add_space_prefix=False,
    )
    assert Tokenizer.from_metadata(metadata).encode("b a", add_special=False) == [268]


class PanicException(BaseException):
    """What the library raises, whose own class of that name is not to be had."""


def test_a_text_that_the_library_gives_up_on_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does so over many millions of spaces, with an exception that no handler of errors would catch."""
    class Panics:
        def encode(self, text: str, add_special_tokens: bool) -> None:
            raise PanicException("retry-limit-in-match over")

    model = Tokenizer.from_metadata(byte_bpe())
    monkeypatch.setattr(model._model, "_tokenizer", Panics())
    with pytest.raises(TokenizerError, match="cannot be cut into words: retry-limit-in-match over"):
        model.encode("   ")
