"""Text of a generation as its tokens arrive."""

import pytest

from ggpy.errors import TokenizerError
from ggpy.text import StreamDecoder, Tokenizer
from tests.text.token_data import byte_bpe, sentencepiece

TOKENIZER = Tokenizer.from_metadata(byte_bpe())


def test_a_character_is_held_back_until_complete() -> None:
    """"é" arrives in two tokens."""
    decoder = StreamDecoder(TOKENIZER)
    assert [decoder.push(i) for i in (ord("a"), 0xC3, 0xA9, ord("b"))] == ["a", "", "é", "b"]
    assert decoder.finish() == ""


def test_an_unfinished_character_appears_at_the_end() -> None:
    """As one U+FFFD, and the decoder can be used again."""
    decoder = StreamDecoder(TOKENIZER)
    assert decoder.extend([0xE4, 0xBD]) == ""
    assert decoder.finish() == "\ufffd"
    assert decoder.extend([0xE4, 0xBD, 0xA0]) == "你"


def test_control_tokens_are_silent_unless_asked_for() -> None:
    """The end of a turn is no text."""
    assert StreamDecoder(TOKENIZER).push(262) == ""
    assert StreamDecoder(TOKENIZER, special=True).push(262) == "<|im_end|>"


def test_a_generation_keeps_its_leading_space() -> None:
    """It continues a text, so the space belongs to it."""
    tokenizer = Tokenizer.from_metadata(sentencepiece())
    space_a = tokenizer.token_id("▁a")
    assert space_a is not None
    assert StreamDecoder(tokenizer).push(space_a) == " a"
    assert tokenizer.decode([space_a]) == "a"


def test_unknown_id_is_an_error() -> None:
    """An id outside the vocabulary is refused."""
    with pytest.raises(TokenizerError, match="token 264: expected an id from 0 to 263"):
        StreamDecoder(TOKENIZER).push(264)
