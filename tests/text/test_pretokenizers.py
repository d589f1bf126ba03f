"""Which expressions stand behind a name; llama.cpp's ids for each are in test_golden_tokens."""

import logging

import pytest
from tokenizers import Regex, pre_tokenizers

from ggpy.text.pretokenizers import PRE_TOKENIZERS, find


def words(name: str, text: str) -> list[str]:
    cut = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in find(name).patterns])
    return [word for word, _ in cut.pre_tokenize_str(text)]


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_family_keeps_all_text(name: str) -> None:
    """Words joined are the text: nothing is lost between matches."""
    text = " It's 12345 ÉCOLE\n\n  x=(a+b);\t你好 é😀\r\n"
    assert "".join(words(name, text)) == text


def test_gpt4o_cuts_where_case_changes() -> None:
    """Also in letters outside ASCII, which llama.cpp's approximation does not tell apart."""
    assert words("gpt-4o", "HTTPServer ДаНет") == ["HTTPServer", " Да", "Нет"]


def test_kimi_k2_keeps_han_apart() -> None:
    """Han characters form words of their own."""
    assert words("kimi-k2", "abc你好def") == ["abc", "你好", "def"]


@pytest.mark.parametrize("name", ["tiny_aya", "superbpe", "afmoe"])
@pytest.mark.parametrize(
    ("digits", "groups"),
    [("7", ["7"]), ("67", ["67"]), ("567", ["567"]), ("4567", ["4", "567"]), ("34567", ["34", "567"]),
     ("234567", ["234", "567"]), ("1234567", ["1", "234", "567"])],
)
def test_digits_are_grouped_from_the_right(name: str, digits: str, groups: list[str]) -> None:
    """As numbers are written with thousands separators."""
    assert words(name, digits) == groups


def test_digits_of_an_identifier_are_not_a_number() -> None:
    """tiny_aya counts from the right only where the run ends a word."""
    assert words("tiny_aya", "1234x") == ["123", "4", "x"]


def test_unknown_name_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """The warning names it, and Llama 3's expression stands in."""
    with caplog.at_level(logging.WARNING, "ggpy"):
        assert find("brand-new").patterns == find("llama-bpe").patterns
    assert "'brand-new'" in caplog.text
    assert not find("brand-new").add_bos


def test_missing_name_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """Old files have none."""
    with caplog.at_level(logging.WARNING, "ggpy"):
        assert find("") is PRE_TOKENIZERS["default"]
    assert "tokenizer.ggml.pre is missing" in caplog.text
