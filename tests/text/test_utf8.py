"""Bytes that are not UTF-8, read as llama.cpp reads them."""

import pytest

from ggpy.text import utf8


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\xffb", "a\ufffdb"),
        (b"\xe4\xbd", "\ufffd\ufffd"),              # cut short: one replacement a byte
        (b"\xc3\x28", "\ufffd("),
        (b"\xc0\x80", "\0"),                        # overlong
        (b"\xe0\x80\xbc", "<"),
        (b"\xed\xa0\x80", "\ud800"),                # an encoded surrogate
        (b"\xf4\x90\x80\x80", "\ufffd"),            # above 10FFFF
        (b"\xf0\x9f\x98\x80", "😀"),
    ],
)
def test_repair(data: bytes, text: str) -> None:
    """Well-shaped sequences are taken for what they spell, other bytes replaced."""
    assert utf8.repair(utf8.escape(data)) == text


def test_escape_keeps_every_byte() -> None:
    """An escaped text gives its bytes back."""
    data = b"\xffa\xe4\xbd\xa0\xed\xa0\x80"
    assert utf8.to_bytes(utf8.escape(data)) == data


def test_a_surrogate_in_a_string_is_its_encoding() -> None:
    """JSON's "\\ud800" is the same as bytes ED A0 80."""
    assert utf8.escape("x\ud800") == utf8.escape(b"x\xed\xa0\x80")


def test_lead_bytes_announce_a_length() -> None:
    """Whatever follows them, as SentencePiece vocabularies are read."""
    assert [utf8.to_bytes(char) for char in utf8.split_by_lead_byte(utf8.escape(b"\xc3(\xffab"))] == [
        b"\xc3(", b"\xffab"
    ]
