"""Prompts in which answers stand as the model wrote them."""

from __future__ import annotations

import pytest

from ggpy.server.chat.answer_meaning import meaning_of
from ggpy.server.model_pool import answer_memory
from ggpy.server.model_pool.answer_memory import AnswerMemory
from ggpy.text.tool_calls import parse_answer
from ggpy.text.tool_calls.known import HERMES

END = 0


def alike(written: list[int], said: list[int], is_open: bool) -> bool:
    """Tens are spaces."""
    return [token for token in written if token % 10] == [token for token in said if token % 10]


def restored(memory: AnswerMemory, *tokens: int) -> list[int]:
    return memory.restored(tokens, {END}, alike)


def test_an_answer_stands_as_the_model_wrote_it() -> None:
    """Up to the token that ends it; what follows stays."""
    memory = AnswerMemory()
    memory.add([1, 2], [10, 3, 4], is_open=False)
    assert restored(memory, 1, 2, 3, 20, 4, END, 5) == [1, 2, 10, 3, 4, END, 5]
    assert restored(memory, 1, 2, 10, 3, 4, END) == [1, 2, 10, 3, 4, END]


def test_one_answer_after_another_is_found() -> None:
    """The second prompt has the first answer in it, as the model wrote it."""
    memory = AnswerMemory()
    memory.add([1, 2], [10, 3], is_open=False)
    memory.add([1, 2, 10, 3, END, 5], [6, 30], is_open=False)
    assert restored(memory, 1, 2, 3, END, 5, 6, END, 7) == [1, 2, 10, 3, END, 5, 6, 30, END, 7]


@pytest.mark.parametrize("tokens", [
    (1, 2, 3, 5, END),          # another answer
    (1, 9, 3, 4, END),          # to another prompt
    (1, 2, 3, 4),               # that goes on
    (1, 2), (1,), (),
])
def test_other_prompts_stay_as_they_are(tokens: tuple[int, ...]) -> None:
    """An edited history is respected."""
    memory = AnswerMemory()
    memory.add([1, 2], [10, 3, 4], is_open=False)
    assert restored(memory, *tokens) == [*tokens]


def test_a_prompt_may_have_had_several_answers() -> None:
    """The one that is meant is taken; the last ones are known."""
    memory = AnswerMemory()
    for token in range(1, 2 + answer_memory.MAX_ANSWERS):
        memory.add([1], [10, token % 10], is_open=False)
    assert restored(memory, 1, 2, END) == [1, 10, 2, END]
    assert restored(memory, 1, 1, END) == [1, 1, END]


def test_what_was_answered_long_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts and tokens have limits."""
    monkeypatch.setattr(answer_memory, "MAX_PROMPTS", 2)
    monkeypatch.setattr(answer_memory, "MAX_TOKENS", 5)
    memory = AnswerMemory()
    for prompt in (1, 2, 3):
        memory.add([prompt], [10, 4], is_open=False)
    assert restored(memory, 1, 4, END) == [1, 4, END]
    assert restored(memory, 2, 4, END) == [2, 10, 4, END]
    memory.add([5], [10, 4, 4], is_open=False)
    assert restored(memory, 2, 4, END) == [2, 4, END]
    assert restored(memory, 5, 4, 4, END) == [5, 10, 4, 4, END]


def same(one: str, other: str) -> bool:
    first, second = (meaning_of(parse_answer(text, HERMES)) for text in (one, other))
    return first == second


@pytest.mark.parametrize(("written", "said", "is_same"), [
    ('{"a": 1, "b": [2]}', '{"a":1,"b":[ 2 ]}', True), ('{"a": "é"}', '{"a": "\\u00e9"}', True),
    ('{"b": 2, "a": 1}', '{"a": 1, "b": 2}', True), ('{"a": 1}', '{"a": 1.0}', True),
    ('{"a": 1}', '{"a": true}', False), ('{"a": 1}', '{"a": "1"}', False), ('{"a": 1}', '{"a": 1, "b": null}', False),
])
def test_calls_are_the_same_if_their_arguments_are(written: str, said: str, is_same: bool) -> None:
    """However the JSON is written."""
    calls = [f'<tool_call>\n{{"name": "f", "arguments": {text}}}\n</tool_call>' for text in (written, said)]
    assert same(calls[0], calls[1].replace("\n", " ")) is is_same


def test_texts_are_the_same_but_for_spaces_around_them() -> None:
    """Not for those within."""
    assert same("Hi there.", "\n Hi there.\n")
    assert not same("Hi there.", "Hi  there.")
    assert not same("Hi there.", "Hi there!")
