"""Messages made ready for templates."""

from __future__ import annotations

from typing import Any

import pytest

from ggpy.errors import RequestError
from ggpy.server.chat.messages import template_messages
from ggpy.text.chat import CHATML, ChatTemplate

PLAIN = ChatTemplate(CHATML)
NO_SYSTEM = ChatTemplate("{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no') }}{% endif %}"
                         "[{{ m.role }}]{{ m.content }}{% endfor %}")
USER = {"role": "user", "content": "Hi"}


def test_a_developer_is_a_system() -> None:
    """But for templates that know the role."""
    developer = [{"role": "developer", "content": "Be brief."}, USER]
    assert template_messages(developer, PLAIN)[0][0]["role"] == "system"
    assert template_messages(developer, ChatTemplate("<|channel|>" + CHATML))[0][0]["role"] == "developer"


@pytest.mark.parametrize(("content", "expected"), [
    ("Hi", "Be brief.\nHi"),
    ([{"type": "text", "text": "Hi"}], [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Hi"}]),
])
def test_a_system_message_goes_before_what_the_user_says(content: Any, expected: Any) -> None:
    """Where the template takes none."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]
    assert template_messages(messages, NO_SYSTEM)[0] == [{"role": "user", "content": expected}]


@pytest.mark.parametrize(("last", "continuation", "field"), [
    ({"role": "assistant", "content": "Well"}, "auto", "content"),
    ({"role": "assistant", "content": "Well"}, "never", None),
    ({"role": "assistant", "content": None, "reasoning_content": "Hm"}, "auto", "reasoning_content"),
    ({"role": "assistant", "content": "", "thinking": "Hm"}, "auto", "reasoning_content"),
    ({"role": "assistant", "content": "Well", "reasoning_content": "Hm"}, "auto", "content"),
    ({"role": "assistant", "content": None}, "auto", "content"),
    ({"role": "user", "content": "Well"}, "auto", None),
])
def test_the_last_message_is_gone_on_with(last: Any, continuation: Any, field: str | None) -> None:
    """If it is the assistant's: its content, or its thoughts if it has said nothing."""
    assert template_messages([USER, last], PLAIN, continuation)[1] == field


def test_parts_of_a_message_to_go_on_with_are_one_text() -> None:
    """As llama-server joins them."""
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    messages, _ = template_messages([USER, {"role": "assistant", "content": parts}], PLAIN, "auto")
    assert messages[-1]["content"] == "a\n\nb"


@pytest.mark.parametrize(("last", "message"), [
    ([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}], "2 or more assistant messages"),
    ([{"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f"}}]}], "contains tool calls"),
])
def test_what_cannot_be_gone_on_with_is_refused(last: list[Any], message: str) -> None:
    """With llama-server's words."""
    with pytest.raises(RequestError, match=message):
        template_messages([USER, *last], PLAIN, "auto")


@pytest.mark.parametrize("messages", [[7], ["text"], [{}], [{"role": 7}], [{"content": []}, USER]])
def test_malformed_messages_are_left_to_the_template(messages: list[Any]) -> None:
    """It says what is wrong with them."""
    assert template_messages(messages, NO_SYSTEM, "auto")[1] is None


@pytest.mark.parametrize(("part", "message"), [
    ({"type": "image_url", "image_url": {"url": "data:"}}, r"messages\[1\].content\[0\]: image input is not supported"),
    ({"type": "input_audio", "input_audio": {}}, "audio input is not supported"),
    ({"type": "video_url"}, "video input is not supported"),
])
def test_what_is_no_text_is_refused(part: Any, message: str) -> None:
    """A template could put a mark in its place, and the model would answer as if it had seen it."""
    with pytest.raises(RequestError, match=message):
        template_messages([USER, {"role": "user", "content": [part]}], PLAIN)
