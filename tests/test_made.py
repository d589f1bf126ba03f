"""What the maker of a model says, as a conversation has it."""

import pytest

from ggpy.hub.store import StoredModel
from ggpy.made import behind_system, with_preface

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


def test_examples_are_copies() -> None:
    """A template's adaptation of messages does not change the maker's."""
    (copy,) = behind_system([], [EXAMPLE])
    assert copy == EXAMPLE
    assert copy is not EXAMPLE
