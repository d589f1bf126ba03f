"""What chats the requests of /v1/responses mean."""

from __future__ import annotations

from typing import Any

import pytest

from ggpy.server.errors import FieldError
from ggpy.server.openai.responses_input import chat_fields
from ggpy.server.openai.responses_reasoning import sealed
from ggpy.server.web.fields import Fields

CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": '{"x": 1}'}
TOOL_CALL = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"x": 1}'}}


def body(**fields: Any) -> dict[str, Any]:
    return dict(chat_fields(Fields({"input": "Hi", **fields})).values)


def messages(*items: Any, **fields: Any) -> Any:
    return body(input=list(items), **fields)["messages"]


def test_a_text_is_what_the_user_says() -> None:
    """Behind the instructions, which are the system's."""
    assert body(instructions="Be kind")["messages"] == [
        {"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}]


@pytest.mark.parametrize("content", ["Hi", [{"type": "input_text", "text": "Hi"}], [{"type": "text", "text": "Hi"}]])
def test_messages_have_texts_or_parts(content: Any) -> None:
    """Their type may be absent."""
    said = [{"role": "user", "content": "Hi"}]
    assert messages({"role": "user", "content": content}) == said
    assert messages({"type": "message", "role": "user", "content": content}) == said


def test_several_parts_stay_parts() -> None:
    """Pictures among them, with their address in an object."""
    assert messages({"role": "user", "content": [{"type": "input_text", "text": "What is this?"},
                                                 {"type": "input_image", "image_url": "data:x"}]}) == [
        {"role": "user", "content": [{"type": "text", "text": "What is this?"},
                                     {"type": "image_url", "image_url": {"url": "data:x", "detail": "auto"}}]}]


def test_a_system_that_follows_the_instructions_continues_them() -> None:
    """Later ones are messages of their own."""
    later = {"role": "developer", "content": "Be brief"}
    assert messages({"role": "system", "content": "Be exact"}, {"role": "user", "content": "Hi"}, later,
                    instructions="Be kind") == [
        {"role": "system", "content": "Be kind\n\nBe exact"}, {"role": "user", "content": "Hi"}, later]


def test_items_of_the_assistant_are_one_message() -> None:
    """Thoughts, text and calls, as a response has them; what comes of a call is a tool's."""
    found = messages(
        {"role": "user", "content": "Look"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]},
        {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [
            {"type": "output_text", "text": "Wait", "annotations": [], "logprobs": []}]},
        CALL, {"type": "function_call_output", "call_id": "call_1", "output": "a cat"})
    assert found[1:] == [
        {"role": "assistant", "reasoning_content": "Hm", "content": "Wait", "tool_calls": [TOOL_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "a cat"}]


def test_two_texts_of_the_assistant_are_joined() -> None:
    """As they are."""
    assert messages({"role": "assistant", "content": "Hel"}, {"role": "assistant", "content": "lo"}) == [
        {"role": "assistant", "content": "Hello"}]


def test_thoughts_without_text_add_nothing() -> None:
    """Hosted models encrypt theirs."""
    assert messages({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "xyz"},
                    {"role": "user", "content": "Hi"}) == [{"role": "user", "content": "Hi"}]


def test_sealed_thoughts_are_read_where_their_text_is_absent() -> None:
    """Those of this server alone, if they are whole."""
    said = {"role": "user", "content": "Hi"}
    for content, found in ((sealed("Hm \u00fc"), [{"role": "assistant", "reasoning_content": "Hm \u00fc"}, said]),
                           (sealed("Hm")[:-1], [said]), ("gAAAA", [said])):
        assert messages({"type": "reasoning", "summary": [], "encrypted_content": content}, said) == found


def test_tools_are_flat_and_those_that_are_no_functions_are_left_out() -> None:
    """Chats have the function in an object of its own."""
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    found = body(tools=[{"type": "function", "name": "look", "description": "Looks", "parameters": schema,
                         "strict": True}, {"type": "web_search"}])
    assert found["tools"] == [
        {"type": "function", "function": {"name": "look", "description": "Looks", "parameters": schema}}]


def test_the_format_of_texts_is_that_of_chats() -> None:
    """With the schema one level deeper."""
    schema = {"type": "object"}
    found = body(text={"format": {"type": "json_schema", "name": "thing", "schema": schema, "strict": True}})
    assert found["response_format"] == {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
    assert body(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in body(text={"format": {"type": "text"}, "verbosity": "low"})


def test_limits_and_effort_have_the_names_of_chats() -> None:
    """And other fields are as they were."""
    found = body(max_output_tokens=5, reasoning={"effort": "low", "summary": "auto"}, temperature=0.5, top_k=3)
    assert (found["max_tokens"], found["reasoning_effort"], found["temperature"], found["top_k"]) == (5, "low", 0.5, 3)


@pytest.mark.parametrize(("fields", "n_top"), [({"include": ["message.output_text.logprobs"]}, 0),
                                               ({"top_logprobs": 4}, 4)])
def test_probabilities_are_asked_for_in_two_ways(fields: dict[str, Any], n_top: int) -> None:
    """To include them, or how many alternatives."""
    found = body(**fields)
    assert (found["logprobs"], found["top_logprobs"]) == (True, n_top)


@pytest.mark.parametrize(("fields", "said"), [
    ({"input": None}, "Field 'input': it is missing"),
    ({"input": 5}, "Field 'input': expected a string or an array"),
    ({"input": ["Hi"]}, r"Field 'input\[0\]': expected an object"),
    ({"input": [{"type": "item_reference", "id": "msg_1"}]}, r"Field 'input\[0\].type': .* found 'item_reference'"),
    ({"input": [{"content": "Hi"}]}, r"Field 'input\[0\].type': .* neither that nor a role"),
    ({"input": [{"role": "tool", "content": "Hi"}]}, r"Field 'input\[0\].role': expected one of user"),
    ({"input": [{"role": "user"}]}, r"Field 'input\[0\].content': it is missing"),
    ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
     r"Field 'input\[0\].content\[0\].type': expected input_text"),
    ({"input": [{**CALL, "name": None}]}, r"Field 'input\[0\].name': it is missing"),
    ({"input": [{"type": "function_call_output", "output": "x"}]}, r"Field 'input\[0\].call_id': it is missing"),
    ({"tools": [{"type": "function"}]}, r"Field 'tools\[0\].name': it is missing"),
    ({"text": {"format": {"type": "xml"}}}, r"Field 'text.format.type': expected one of text"),
    ({"text": {"format": {"type": "json_schema"}}}, r"Field 'text.format.schema': it is missing"),
    ({"max_output_tokens": 0}, "Field 'max_output_tokens': Value must be between 1"),
    ({"reasoning": {"effort": 5}}, "Field 'reasoning.effort': expected a string"),
    ({"previous_response_id": "resp_1"}, "Field 'previous_response_id': this server stores no responses"),
    ({"conversation": "conv_1"}, "Field 'conversation': this server stores no responses"),
    ({"background": True}, "Field 'background': this server stores no responses"),
])
def test_what_cannot_be_is_told_by_the_field(fields: dict[str, Any], said: str) -> None:
    """And what would do."""
    with pytest.raises(FieldError, match=said):
        body(**fields)


def test_stateful_fields_that_say_no_are_fine() -> None:
    """So are those that are of no account."""
    body(background=False, previous_response_id=None, store=True, truncation="auto", metadata={"a": "b"}, user="me")
