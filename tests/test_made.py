"""What the maker of a model says, as a conversation has it."""

import pytest

from ggpy.hub.store import StoredModel
from ggpy.made import behind_system, load_options, with_preface

SYSTEM = {"role": "system", "content": "You are Mario"}
EXAMPLE = {"role": "assistant", "content": "It's me"}
MARIO = StoredModel(name="mario:latest", source="m.gguf", system=SYSTEM["content"], messages=(EXAMPLE,))
PEACH = {"role": "system", "content": "You are Peach"}
HI = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(("messages", "expected"), [
    ([HI], [SYSTEM, EXAMPLE, HI]),
    ([PEACH, HI], [PEACH, EXAMPLE, HI]),
    ([PEACH, PEACH, HI], [PEACH, PEACH, EXAMPLE, HI]),
    ([HI, PEACH], [SYSTEM, EXAMPLE, HI, PEACH]),
    ([PEACH], [PEACH, EXAMPLE]),
])
def test_the_system_prompt_stands_in_front(messages: list[dict[str, str]], expected: list[dict[str, str]]) -> None:
    """The user's takes the place of the maker's, as it does in Ollama; the maker's messages follow it."""
    assert with_preface(messages, MARIO) == expected


def test_without_a_maker_messages_stay() -> None:
    """And so they do where he said nothing."""
    assert with_preface([PEACH, HI], None) == [PEACH, HI]
    assert with_preface([HI], StoredModel(name="m:latest", source="m.gguf")) == [HI]


@pytest.mark.parametrize(("num_thread", "expected"), [
    (3, {"n_threads": 3}), (4, {"n_threads": 4}), (5, {"n_threads": 4}), (10**9, {"n_threads": 4}), (0, {}), (-1, {})])
def test_there_are_no_more_threads_than_cores(
    monkeypatch: pytest.MonkeyPatch, num_thread: int, expected: dict[str, int]
) -> None:
    """Those beyond would wait for others; starting very many takes all memory."""
    monkeypatch.setattr("ggpy.made.usable_cores", lambda: 4)
    made = StoredModel(name="m:latest", source="m.gguf", parameters={"num_thread": num_thread})
    assert load_options(made) == expected


def test_examples_are_copies() -> None:
    """A template's adaptation of messages does not change the maker's."""
    (copy,) = behind_system([], [EXAMPLE])
    assert copy == EXAMPLE
    assert copy is not EXAMPLE
