"""What a reranker reads."""

from typing import Any

import pytest

from ggpy.errors import TemplateError
from ggpy.text import ModelText

WORDS: dict[str, Any] = {
    "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": ["[UNK]", "[CLS]", "[SEP]", "▁a", "▁b", "▁{", "▁}"],
    "tokenizer.ggml.bos_token_id": 1, "tokenizer.ggml.seperator_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
}


@pytest.mark.parametrize(("flags", "expected"), [
    ({}, [1, 3, 2, 4]),
    ({"add_eos_token": True, "eos_token_id": 2}, [1, 3, 2, 2, 4, 2]),
    ({"add_bos_token": False, "add_sep_token": False}, [3, 4]),
])
def test_query_and_document_are_joined_by_the_tokens_that_are_added(flags: dict[str, Any], expected: list[int]) -> None:
    """BOS query EOS SEP document EOS; which of these, the file says."""
    text = ModelText(WORDS | {f"tokenizer.ggml.{name}": value for name, value in flags.items()})
    assert text.rerank_tokens("a", "b") == expected


def test_a_template_joins_them_as_it_says() -> None:
    """What stands in place of a text is not looked at again."""
    text = ModelText(WORDS | {"tokenizer.chat_template.rerank": "b {document} a {query}"})
    assert text.rerank_tokens("a", "b") == [4, 4, 3, 3]
    assert text.rerank_tokens("{document}", "b") == [4, 4, 3, 5, 0, 6]


def test_a_template_that_is_no_text_is_refused() -> None:
    """The message names its key."""
    with pytest.raises(TemplateError, match=r"tokenizer\.chat_template\.rerank: expected a string, found 5"):
        ModelText(WORDS | {"tokenizer.chat_template.rerank": 5}).rerank_tokens("a", "b")
