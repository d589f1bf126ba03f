"""One answer taken apart: control tokens that belong to marks and tags are text, others are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ggpy.engine.probabilities import TokenProbability
from ggpy.server.chat.reader import AnswerReader, ShownText, control_tokens
from ggpy.server.jobs.generation import Answer, Delta
from ggpy.server.model_pool.slots import Task
from ggpy.text import Tokenizer
from ggpy.text.reasoning import ReasoningTags
from ggpy.text.tool_calls import FORMATS, AnswerStyle, Event, ParsedAnswer
from tests.text.token_data import CONTROL, NORMAL, byte_bpe

CONTROLS = ("<bos>", "<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>", "[THINK]", "[/THINK]", "<|other|>")
LFM = next(each for each in FORMATS if each.name == "lfm")
STYLE = AnswerStyle(LFM, ReasoningTags("[THINK]", "[/THINK]"), True)
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}}}}}]


@cache
def tokenizer() -> Tokenizer:
    """All bytes, then CONTROLS."""
    metadata = byte_bpe()
    types = [NORMAL] * 256 + [CONTROL] * len(CONTROLS)
    return Tokenizer.from_metadata(byte_bpe(
        tokens=[*metadata["tokenizer.ggml.tokens"][:256], *CONTROLS], token_type=np.array(types, np.int32), merges=[],
        bos_token_id=256, eos_token_id=257))


def encode(text: str) -> list[int]:
    return tokenizer().encode(text, add_special=False, parse_special=True)


def delta(text: str, tokens: Sequence[int], *, is_last: bool = False) -> Delta:
    """What the engine tells: its text has no control tokens."""
    return Delta(Answer(0, 1, 100, Task([1])), text, tuple(tokens), is_last=is_last)


def plain(tokens: Sequence[int]) -> str:
    return tokenizer().decode(tokens, unparse_special=False)


def read(text: str, n_together: int, *, is_open: bool = False) -> ParsedAnswer:
    """The answer `text`, read from `n_together` tokens at a time."""
    reader = AnswerReader(tokenizer(), STYLE, LFM, TOOLS, is_open=is_open)
    events: list[Event] = []
    tokens = encode(text)
    for start in range(0, len(tokens), n_together):
        part = tokens[start : start + n_together]
        events += reader.read(delta(plain(part), part))
    return ParsedAnswer.of([*events, *reader.read(delta("", (), is_last=True))])


@pytest.mark.parametrize("n_together", [1, 3, 100])
def test_marks_and_tags_are_seen_and_other_control_tokens_are_not(n_together: int) -> None:
    """However many tokens a step brings."""
    parsed = read("[THINK]Hm.<|other|>[/THINK]Yes.<|tool_call_start|>[f(a=1)]<|tool_call_end|>", n_together)
    assert (parsed.reasoning, parsed.content) == ("Hm.", "Yes.")
    assert [(call.name, call.arguments) for call in parsed.calls] == [("f", '{"a": 1}')]


def test_reasoning_that_the_prompt_has_begun_is_reasoning() -> None:
    """There is no tag in front of them."""
    parsed = read("Hm.[/THINK]Yes.", 1, is_open=True)
    assert (parsed.reasoning, parsed.content) == ("Hm.", "Yes.")


def test_space_behind_reasoning_of_the_prompt_is_no_content() -> None:
    """As it is none behind reasoning of the answer."""
    reader = AnswerReader(tokenizer(), STYLE, None, (), is_closed=True)
    events = [event for text in ("\n", "\n Yes", "\n", "No") for event in reader.read(delta(text, encode(text)))]
    assert ParsedAnswer.of(events).content == "Yes\nNo"


def test_tokens_of_reasoning_are_counted() -> None:
    """With the tags around them."""
    reader = AnswerReader(tokenizer(), STYLE, None, ())
    for token in encode("[THINK]Hm.[/THINK]Yes."):
        reader.read(delta(plain([token]), [token]))
    assert reader.n_reasoning == len(("[THINK]", *"Hm.", "[/THINK]"))
    assert not reader.is_reasoning


def test_text_that_is_inserted_ends_reasoning() -> None:
    """As if the model had written it."""
    reader = AnswerReader(tokenizer(), STYLE, None, (), is_open=True)
    events = reader.read(delta("Hm", encode("Hm")))
    assert reader.is_reasoning
    events += reader.insert(" enough.[/THINK]")
    assert not reader.is_reasoning
    events += reader.read(delta("Yes", encode("Yes"), is_last=True))
    parsed = ParsedAnswer.of(events)
    assert (parsed.reasoning, parsed.content) == ("Hm enough.", "Yes")


def test_a_mark_waits_for_the_text_before_it() -> None:
    """The engine holds text back that may begin a stop string; a mark behind such a text comes when it does."""
    text = ShownText(tokenizer(), control_tokens(tokenizer(), ["<|tool_call_start|>"]))
    assert text.read(delta("a", encode("ab<|tool_call_start|>c"))) == "a"
    assert text.read(delta("bc", ())) == "b<|tool_call_start|>c"


def test_a_mark_behind_a_stop_string_never_comes() -> None:
    """The text in front of it was not told."""
    text = ShownText(tokenizer(), control_tokens(tokenizer(), ["<|tool_call_start|>"]))
    assert text.read(delta("a", encode("ab<|tool_call_start|>"), is_last=True)) == "a"


def test_control_tokens_are_found_inside_of_texts() -> None:
    """Texts may have more around them; what is no control token is not told."""
    found = control_tokens(tokenizer(), ["x<|tool_call_end|>\n", "[THINK]", "<tool_call>"])
    assert found == {259: "<|tool_call_end|>", 260: "[THINK]"}


def test_probabilities_are_those_of_the_content() -> None:
    """Not of reasoning, its tags and the end, also where one step brings some of each."""
    reader = AnswerReader(tokenizer(), STYLE, None, ())
    told: list[TokenProbability] = []
    for part, is_last in (("[THINK]H", False), ("m[/THINK]\n\nYe", False), ("s", False), (".<|im_end|>", True)):
        tokens = encode(part)
        found = tuple(TokenProbability(token, -1.0) for token in tokens)
        reader.read(replace(delta(plain(tokens), tokens, is_last=is_last), probabilities=found))
        told += reader.probabilities()
    assert bytes(each.token for each in told) == b"Yes."


def test_probabilities_wait_while_a_tag_may_come() -> None:
    """What has come may turn out to be one."""
    tags = AnswerStyle(LFM, ReasoningTags("<think>", "</think>"), True)
    for text, expected in (("<think>", b""), ("<thing", b"<thing")):
        reader = AnswerReader(tokenizer(), tags, None, ())
        told: list[TokenProbability] = []
        for token in encode(text):
            reader.read(replace(delta(chr(token), [token]), probabilities=(TokenProbability(token, -1.0),)))
            told += reader.probabilities()
        assert bytes(each.token for each in told) == expected
