"""Which tokens of a prompt a `cache_control` is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ggpy.errors import RequestError
from ggpy.server.anthropic.breakpoints import MAX_MISSED, Keep, keeps_of, read_blocks
from ggpy.server.web.fields import Fields

SHORT, LONG = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}
PROMPT = "<s>Be brief.Tools: look.<u>Hello<a>Hi<u>Bye<a>"   # with tools behind the system
TOOL = {"name": "look", "input_schema": {}}


def text(said: str, control: dict[str, str] | None = None) -> dict[str, Any]:
    return {"type": "text", "text": said, **({"cache_control": control} if control else {})}


def kept(prompt: str = PROMPT, **body: Any) -> tuple[Keep, ...]:
    """The keeps of a request whose tokens are letters."""
    messages = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"},
                {"role": "user", "content": [text("Bye")]}]
    blocks = read_blocks(Fields({"messages": messages, **body}))
    return keeps_of(blocks, prompt, [0] * len(prompt.encode()), np.ones(1, np.int64))


def before(words: str, prompt: str = PROMPT) -> int:
    """How many tokens stand before some words."""
    return len(prompt[: prompt.index(words)].encode())


def test_tools_and_the_system_end_where_the_first_message_begins() -> None:
    """A template has them in an order of its own."""
    end = before("Hello")
    assert kept(tools=[{**TOOL, "cache_control": SHORT}]) == ((end, 300.0),)
    assert kept(system=[text("Be", LONG), text(" brief.", SHORT)], tools=[TOOL]) == (
        (before(" brief."), 3600.0), (end, 300.0))


def test_a_block_of_a_message_ends_behind_its_text() -> None:
    """That of a result of a tool too; the last block of all is the end of the prompt."""
    body: list[Any] = [
        {"role": "user", "content": [text("Hello", LONG)]},
        {"role": "assistant", "content": [text("Hi"), {"type": "tool_use", "id": "t", "name": "look", "input": {},
                                                       "cache_control": SHORT}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [text("Bye")],
                                      "cache_control": SHORT}]}]
    assert kept(messages=body) == ((before("<a>Hi"), 3600.0), (before("Bye"), 300.0), (len(PROMPT), 300.0))
    body[2]["content"].append(text("Now."))
    assert kept(f"{PROMPT[:-3]}<u>Now.<a>", messages=body)[2] == (before("<a>Hi") + len("<a>Hi<u>Bye"), 300.0)


def test_that_of_the_request_is_the_last_block_s() -> None:
    """Unless that has one of its own."""
    assert kept(cache_control=LONG) == ((len(PROMPT), 3600.0),)
    assert kept(cache_control=LONG, messages=[{"role": "user", "content": [text("Bye", SHORT)]}]) == (
        (len(PROMPT), 300.0),)


def test_texts_are_counted_in_bytes_of_tokens() -> None:
    """Those of other alphabets too; what the template leaves out is where the one before ends."""
    body = [{"role": "user", "content": [text("Grüß", SHORT), text("Gone", SHORT), text("Bye")]}]
    assert kept("<s>Grüß Bye<a>", messages=body) == ((9, 300.0), (9, 300.0))


def test_texts_are_not_looked_for_in_vain_without_end() -> None:
    """A template that leaves out most of a long conversation costs as much as a few of its texts."""
    for n_gone, n_kept in ((MAX_MISSED, 0), (MAX_MISSED - 1, len("Hello Bye"))):
        content = [*(text(f"Gone {i}") for i in range(n_gone)), text("Bye", SHORT), text("")]
        assert kept("Hello Bye<a>", messages=[{"role": "user", "content": content}]) == ((n_kept, 300.0),)


def test_nothing_is_marked_by_itself() -> None:
    """A null is no mark."""
    assert kept(system=[{**text("Be brief."), "cache_control": None}]) == ()


@pytest.mark.parametrize(("system", "message"), [
    ([text("a", SHORT)] * 5, "A maximum of 4 blocks with cache_control may be provided. Found 5."),
    ([text("a", SHORT), text("b", LONG)], "a ttl='1h' cache_control block must not come after a ttl='5m'")])
def test_what_cannot_be_kept_is_refused(system: list[Any], message: str) -> None:
    """In the words of Anthropic's API."""
    with pytest.raises(RequestError, match=message):
        read_blocks(Fields({"system": system, "messages": []}))
