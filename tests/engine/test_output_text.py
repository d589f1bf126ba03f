"""Stop strings and characters that are spread over tokens."""

import codecs
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ggpy.engine.output_text import OutputText


class Pieces:
    """Token i spells the i-th of some pieces of bytes."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        return self.decoder.decode(self.pieces[token_id])

    def finish(self) -> str:
        return self.decoder.decode(b"", final=True)


def released(pieces: list[bytes], *stop: str) -> list[str]:
    """What each piece releases, then what the end of the answer does, unless a stop string came first."""
    text = OutputText(Pieces(pieces), stop)
    parts = []
    for i in range(len(pieces)):
        parts.append(text.push(i))
        if text.stopped:
            return parts
    return [*parts, text.finish()]


@pytest.mark.parametrize(("pieces", "stop", "expected"), [
    ([b"ab", b"cd"], (), ["ab", "cd", ""]),
    ([b"ab", b"cd"], ("bc",), ["a", ""]),                   # the stop string lies across two tokens
    ([b"ab", b"xd"], ("bc",), ["a", "bxd", ""]),            # a false alarm is released late, not lost
    ([b"ab"], ("bc",), ["a", "b"]),                         # the answer ends inside a possible stop string
    ([b"one STOP two"], ("STOP",), ["one "]),
    ([b"a", b"a", b"b"], ("ab",), ["", "a", ""]),           # the alarm starts anew with each a
    ([b"xabcb"], ("abc", "b"), ["xa"]),                     # the one that is complete first, as if letter by letter
    ([b"xab"], ("b", "ab"), ["x"]),                         # complete together: the longer one
])
def test_text_before_a_stop_string(pieces: list[bytes], stop: tuple[str, ...], expected: list[str]) -> None:
    """Text is released as soon as it cannot be part of a stop string, which itself never is."""
    assert released(pieces, *stop) == expected


def test_a_character_is_released_whole() -> None:
    """The four bytes of an emoji may come as four tokens."""
    assert released([b"\xf0", b"\x9f", b"\x98", b"\x80!"]) == ["", "", "", "\U0001f600!", ""]


def test_half_a_character_at_the_end_becomes_the_replacement_character() -> None:
    """The text is then what decoding all tokens at once gives."""
    assert released([b"a\xf0\x9f"]) == ["a", "\ufffd"]


@given(st.text("ab\u00e9", max_size=30), st.lists(st.text("ab\u00e9", min_size=1, max_size=4), max_size=3),
       st.lists(st.integers(0, 60), max_size=8))
def test_text_does_not_depend_on_how_tokens_cut_it(text: str, stop: list[str], cuts: list[int]) -> None:
    """It ends before the stop string that is complete first."""
    data = text.encode()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in itertools.pairwise(edges)]
    ends = [n for n in range(len(text) + 1) if any(text[:n].endswith(s) for s in stop)]
    whole = text
    if ends:
        whole = text[: ends[0] - max(len(s) for s in stop if text[: ends[0]].endswith(s))]
    assert "".join(released(pieces, *stop)) == whole
