"""Anthropic's messages and tools in OpenAI's shape."""

from __future__ import annotations

from typing import Any

import pytest

from ggpy.errors import RequestError
from ggpy.server.anthropic.messages import read_messages, read_tools
from ggpy.server.web.fields import Fields
from tests.server.conftest import Served


def converted(*messages: dict[str, Any], **others: Any) -> list[dict[str, Any]]:
    return read_messages(Fields({"messages": list(messages), **others}))


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said, "cache_control": {"type": "ephemeral"}}


def test_texts_stay_what_they_are() -> None:
    """As strings and as blocks; several blocks stay apart, for templates decide how to join them."""
    assert converted({"role": "user", "content": "Hi"}, {"role": "assistant", "content": [text("a"), text("b")]},
                     user(text("c"), text("d"))) == [
        {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "ab"},
        {"role": "user", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]}]


def test_the_system_comes_first() -> None:
    """Its blocks make one text."""
    assert converted(system=[text("Be"), text(" kind.")])[0] == {"role": "system", "content": "Be kind."}
    assert converted(system="Be kind.")[0] == {"role": "system", "content": "Be kind."}


def test_the_signature_of_a_request_does_not_change_the_prompt() -> None:
    """That of the first line of some clients' system prompts; all other text is left alone."""
    signed = "x-anthropic-billing-header: cc_version=2.1; cch=a5145;You are"
    assert converted(system=signed)[0]["content"] == "x-anthropic-billing-header: cc_version=2.1; cch=fffff;You are"
    assert converted(system=[text(signed)])[0]["content"].endswith("cch=fffff;You are")
    assert converted(system="The cch=a5145; is no stamp")[0]["content"] == "The cch=a5145; is no stamp"


def test_a_call_and_its_result_become_two_messages() -> None:
    """The arguments are JSON text; results keep the order that they have among texts."""
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {"path": "é"}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [text("12"), text("3")], "is_error": True}
    assert converted({"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"},
                                                       {"type": "redacted_thinking", "data": "x"},
                                                       text("I look."), call]},
                     user(result, text("Go on"))) == [
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm",
         "tool_calls": [{"id": "t1", "type": "function",
                         "function": {"name": "look", "arguments": '{"path": "é"}'}}]},
        {"role": "tool", "tool_call_id": "t1", "content": "123"}, {"role": "user", "content": "Go on"}]


def test_a_result_may_be_empty() -> None:
    """Or a string."""
    contents: list[dict[str, Any]] = [{}, {"content": "ok"}, {"content": []}]
    assert [converted(user({"type": "tool_result", "tool_use_id": "t", **content}))[0]["content"]
            for content in contents] == ["", "ok", ""]


def test_pictures_have_an_address() -> None:
    """Which holds those that were sent."""
    sent = {"type": "base64", "media_type": "image/png", "data": "QUJD"}
    found = converted(user({"type": "image", "source": sent},
                           {"type": "image", "source": {"type": "url", "url": "http://a/b.png"}}))
    assert [part["image_url"]["url"] for part in found[0]["content"]] == ["data:image/png;base64,QUJD", "http://a/b.png"]
    within = converted(user({"type": "tool_result", "tool_use_id": "t", "content": [
        text("see"), {"type": "image", "source": sent}]}))
    assert [part["type"] for part in within[0]["content"]] == ["text", "image_url"]


def test_documents_are_read_if_they_are_text() -> None:
    """Below their titles; others are left out."""
    documents = [{"type": "document", "title": "Notes", "source": {"type": "text", "data": "one"}},
                 {"type": "search_result", "title": "Found", "source": "x", "content": [text("two")]},
                 {"type": "document", "source": {"type": "content", "content": [text("three")]}},
                 {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "J"}}]
    found = converted(user(*documents))
    assert [part["text"] for part in found[0]["content"]] == ["Notes\none", "Found\ntwo", "three"]


def test_no_messages_are_a_user_who_says_nothing() -> None:
    """As for llama-server."""
    assert converted() == [{"role": "user", "content": ""}]


@pytest.mark.parametrize(("body", "where"), [
    ({}, "messages"), ({"messages": {}}, "messages"), ({"messages": ["a"]}, "messages[0]"),
    ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [user({"type": "song"})]}, "messages[0].content[0].type"),
    ({"messages": [user({"type": "text"})]}, "messages[0].content[0].text"),
    ({"messages": [user({"type": "tool_result", "content": "a"})]}, "messages[0].content[0].tool_use_id"),
    ({"messages": [user({"type": "tool_use"})]}, "messages[0].content[0].type"),
    ({"messages": [user({"type": "image", "source": {"type": "file"}})]}, "messages[0].content[0].source.type"),
    ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "c"}]}]},
     "messages[0].content[0].input"),
    ({"messages": [], "system": [{"type": "image"}]}, "system[0].type"), ({"messages": [], "system": 3}, "system"),
])
def test_what_is_wrong_is_named(body: dict[str, Any], where: str) -> None:
    """With its place."""
    with pytest.raises(RequestError) as caught:
        read_messages(Fields(body))
    assert str(caught.value).startswith(f"Field '{where}': ")


def test_tools_are_functions() -> None:
    """A tool that only Anthropic's servers have is refused."""
    schema = {"type": "object", "properties": {"path": {"type": "string"}}}
    assert read_tools(Fields({"tools": [{"name": "look", "input_schema": schema}]})) == [
        {"type": "function", "function": {"name": "look", "description": "", "parameters": schema}}]
    with pytest.raises(RequestError, match=r"tools\[0\]\.type.*no tools of its own"):
        read_tools(Fields({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}))


def test_calls_are_text_where_the_template_writes_none(server: Served) -> None:
    """So that the model still sees what it called."""
    body = {"model": "tiny", "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [text("I look."),
                                          {"type": "tool_use", "id": "t", "name": "look", "input": {"a": 1}}]},
        user({"type": "tool_result", "tool_use_id": "t", "content": "x"})]}
    counted = server.post("/v1/messages/count_tokens", body).json["input_tokens"]
    spelled = 'I look.\n{"name": "look", "arguments": {"a": 1}}'
    plain = [body["messages"][0], {"role": "assistant", "content": spelled}, {"role": "tool", "content": "x"}]
    prompt = server.post("/apply-template", {"messages": plain}).json["prompt"]
    tokens = server.post("/tokenize", {"content": prompt, "add_special": True}).json["tokens"]
    assert counted == len(tokens)
