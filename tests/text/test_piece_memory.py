"""Texts that were encoded before."""

import sys
from array import array

import msgspec
import pytest

from ggpy.text import ChatTemplate, Tokenizer
from ggpy.text.bpe import BytePairModel
from ggpy.text.piece_memory import PieceMemory, size_bytes
from tests.text.token_data import byte_bpe

HELLO, SPACE_HELLO, IM_END = 259, 260, 262


class Encoder:
    """Encodes characters as their code points, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, text: str) -> list[int]:
        self.asked.append(text)
        return [ord(character) for character in text]


def test_a_piece_is_encoded_once() -> None:
    """The second time its tokens are remembered."""
    encoder = Encoder()
    memory = PieceMemory(encoder)
    assert [memory.encode("ab"), memory.encode("ab"), memory.encode("b")] == [[97, 98], [97, 98], [98]]
    assert encoder.asked == ["ab", "b"]


def test_what_callers_do_to_the_tokens_is_not_remembered() -> None:
    """Each gets a list of its own."""
    memory = PieceMemory(Encoder())
    memory.encode("ab").append(1)
    memory.encode("ab").append(2)
    assert memory.encode("ab") == [97, 98]


def test_the_piece_that_was_not_used_for_longest_goes() -> None:
    """There is room for two; "a" was used again, so "b" goes."""
    encoder = Encoder()
    memory = PieceMemory(encoder, 2 * size_of("a"))
    for text in ("a", "b", "a", "c", "a", "b"):
        memory.encode(text)
    assert encoder.asked == ["a", "b", "c", "b"]


def test_a_piece_that_is_too_long_is_not_remembered() -> None:
    """And drives nothing out."""
    encoder = Encoder()
    memory = PieceMemory(encoder, size_of("a"))
    for text in ("a", "a" * 1000, "a" * 1000, "a"):
        memory.encode(text)
    assert encoder.asked == ["a", "a" * 1000, "a" * 1000]


def test_a_text_that_grows_takes_what_it_took_when_it_came() -> None:
    """Python adds a text's UTF-8 to it when C code asks for that; as many pieces as before are remembered then."""
    first = "é" * 1000
    memory = PieceMemory(Encoder(), 3 * size_of(first))
    for text in (first, *(f"{i:04}" + "é" * 996 for i in range(20))):
        memory.encode(text)
        before = sys.getsizeof(text)
        msgspec.json.encode(text)
        assert sys.getsizeof(text) > before
    assert len(memory._found) == 3


def test_only_what_a_turn_adds_is_encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation that is sent again is cut at its control tokens."""
    asked: list[str] = []
    encode = BytePairModel.encode

    def noted(model: BytePairModel, text: str) -> list[int]:
        asked.append(text)
        return encode(model, text)

    monkeypatch.setattr(BytePairModel, "encode", noted)
    template = ChatTemplate("{% for m in messages %}{{ m.content }}<|im_end|>{% endfor %}")
    tokenizer = Tokenizer.from_metadata(byte_bpe())
    turns = [{"role": "user", "content": text} for text in ("hello", "ab", "hello hello")]
    before = template.prompt(turns[:2], tokenizer).encode(tokenizer)
    assert template.prompt(turns, tokenizer).encode(tokenizer) == [*before, HELLO, SPACE_HELLO, IM_END]
    assert asked == ["hello", "ab", "hello hello"]


def size_of(text: str) -> int:
    """What `text` takes there, a token for each character."""
    return size_bytes(text, array("i", [0] * len(text)))
