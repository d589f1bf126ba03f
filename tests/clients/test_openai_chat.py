"""Chats through OpenAI's own client, whole and streamed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

HI: list[Any] = [{"role": "user", "content": "Hi"}]
WEATHER: Any = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city.", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": False}}}
CLOCK: Any = {"type": "function", "function": {
    "name": "get_time", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}
ROME = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'
OSLO = ROME.replace("Rome", "Oslo")
SILENT = {"chat_template_kwargs": {"enable_thinking": False}}

Script = Callable[..., None]


class Weather(pydantic.BaseModel):
    """What a structured answer holds."""

    city: Literal["Rome", "Oslo"]
    is_warm: bool


def ask(client: openai.OpenAI, messages: list[Any] = HI, **options: Any) -> ChatCompletion:
    answer = client.chat.completions.create(model="tiny", messages=messages, **{"max_tokens": 64, **options})
    assert isinstance(answer, ChatCompletion)
    return answer


def stream(client: openai.OpenAI, messages: list[Any] = HI, **options: Any) -> list[ChatCompletionChunk]:
    return list(client.chat.completions.create(model="tiny", messages=messages, stream=True,
                                               **{"max_tokens": 64, **options}))


def joined(chunks: Iterable[ChatCompletionChunk], name: str = "content") -> str:
    """What a field of all deltas says together."""
    return "".join(getattr(choice.delta, name, None) or "" for chunk in chunks for choice in chunk.choices)


def test_an_answer_has_what_clients_read(openai_client: openai.OpenAI, script: Script) -> None:
    """A prompt that was read before is cached but for its last token."""
    script("Hello.", "Hello.")
    ask(openai_client, max_completion_tokens=50)
    answer = ask(openai_client, max_completion_tokens=50)
    assert (answer.object, answer.model, answer.id[:9]) == ("chat.completion", "tiny", "chatcmpl-")
    (choice,) = answer.choices
    assert (choice.index, choice.finish_reason, choice.message.content) == (0, "stop", "Hello.")
    assert (choice.message.role, choice.message.tool_calls, choice.logprobs) == ("assistant", None, None)
    usage = answer.usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    assert usage.completion_tokens == len("Hello.")
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_a_stream_says_the_same_in_order(openai_client: openai.OpenAI, script: Script) -> None:
    """The role comes once and first, then the text, the reason of the end, and the usage alone where it is wanted."""
    script("Hello.", "Hello.")
    chunks = stream(openai_client, stream_options={"include_usage": True})
    *told, last, usage = chunks
    assert [chunk.choices[0].delta.role for chunk in told] == ["assistant", *[None] * (len(told) - 1)]
    assert (told[0].choices[0].delta.content, joined(told)) == (None, "Hello.")
    assert (last.choices[0].finish_reason, last.choices[0].delta.content) == ("stop", None)
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == len("Hello.")
    assert len({(chunk.id, chunk.created, chunk.model, chunk.object) for chunk in chunks}) == 1
    assert all(chunk.choices for chunk in stream(openai_client))


@pytest.mark.parametrize("text", [
    ROME, f"I will look.\n{ROME}", f"{ROME}\n{OSLO}", f"<think>\nHm.\n</think>\n\n{ROME}"])
def test_calls_are_told_whole_and_streamed(openai_client: openai.OpenAI, script: Script, text: str) -> None:
    """One or several, with and without text and thoughts before them; ids are unique."""
    script(text, text)
    (choice,) = ask(openai_client, tools=[WEATHER], max_tokens=300).choices
    with openai_client.chat.completions.stream(model="tiny", messages=HI, tools=[WEATHER], max_tokens=300) as events:
        streamed = events.get_final_completion().choices[0]
    for found in (choice, streamed):
        assert (found.finish_reason, found.message.content) == (
            "tool_calls", "I will look." if text.startswith("I") else None)
        calls: list[Any] = found.message.tool_calls or []
        assert [call.function.name for call in calls] == ["get_weather"] * text.count("<tool_call>")
        assert [json.loads(call.function.arguments)["city"] for call in calls] == (
            ["Rome", "Oslo"] if OSLO in text else ["Rome"])
        assert len({call.id for call in calls}) == len(calls)


def test_deltas_of_a_call_begin_with_its_name(openai_client: openai.OpenAI, script: Script) -> None:
    """Id, type and name come once, arguments always as texts; calls are told apart by their index."""
    script(f"{ROME}\n{OSLO}")
    deltas: list[Any] = [call for chunk in stream(openai_client, tools=[WEATHER], max_tokens=300)
                         for choice in chunk.choices for call in choice.delta.tool_calls or []]
    for index, city in enumerate(("Rome", "Oslo")):
        first, *others = [each for each in deltas if each.index == index]
        assert (first.type, first.function.name, bool(first.id)) == ("function", "get_weather", True)
        assert {(each.type, each.function.name, each.id) for each in others} == {(None, None, None)}
        arguments = "".join(each.function.arguments for each in (first, *others))
        assert json.loads(arguments) == {"city": city}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
@pytest.mark.parametrize("thinks", [True, False])
def test_a_call_that_has_to_come_meets_its_schema(openai_client: openai.OpenAI, choice: Any, thinks: bool) -> None:
    """Whatever the model would have said; it may not call another tool than the one that is named."""
    body = {"chat_template_kwargs": {"enable_thinking": thinks}, "thinking_budget_tokens": 4 if thinks else -1}
    answer = ask(openai_client, tools=[CLOCK, WEATHER], tool_choice=choice, max_tokens=400, parallel_tool_calls=False,
                 extra_body=body)
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert answer.choices[0].finish_reason == "tool_calls"
    if call.function.name == "get_weather":
        assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    else:
        assert (choice, call.function.name, json.loads(call.function.arguments)) == ("required", "get_time", {})


def test_without_choice_calls_are_text(openai_client: openai.OpenAI, script: Script) -> None:
    """So they are where a request has no tools."""
    script(ROME, ROME)
    wanted: tuple[dict[str, Any], ...] = ({"tools": [WEATHER], "tool_choice": "none"}, {})
    for options in wanted:
        (choice,) = ask(openai_client, max_tokens=300, **options).choices
        assert (choice.finish_reason, choice.message.content, choice.message.tool_calls) == ("stop", ROME, None)


def test_a_call_cut_off_is_told_as_far_as_it_came(openai_client: openai.OpenAI, script: Script) -> None:
    """The limit is the reason of the end."""
    script(ROME)
    (choice,) = ask(openai_client, tools=[WEATHER], max_tokens=len(ROME) - 20).choices
    (call,) = choice.message.tool_calls or []
    assert call.type == "function"
    assert choice.finish_reason == "length"
    assert call.function.arguments.startswith('{"city"')


def test_a_history_of_calls_and_results_is_read(openai_client: openai.OpenAI, script: Script) -> None:
    """What the assistant called, and what came of it, are part of the prompt."""
    script(ROME, "It is warm.")
    called = ask(openai_client, tools=[WEATHER], max_tokens=300)
    message = called.choices[0].message
    assert message.tool_calls
    assert called.usage
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "25 degrees"}
    answer = ask(openai_client, [*HI, message.model_dump(exclude_none=True), result], tools=[WEATHER])
    assert answer.choices[0].message.content == "It is warm."
    assert answer.usage
    assert answer.usage.prompt_tokens > called.usage.prompt_tokens + 40


@pytest.mark.parametrize(("form", "content", "reasoning"), [
    ("auto", "Yes.", "Hm."), ("deepseek", "Yes.", "Hm."), ("none", "<think>\nHm.\n</think>\n\nYes.", ""),
    ("deepseek-legacy", "<think>\nHm.\n</think>\n\nYes.", "Hm."),
])
def test_thoughts_are_told_as_the_format_says(openai_client: openai.OpenAI, script: Script, form: str, content: str,
                                              reasoning: str) -> None:
    """Apart from the content, in it, or in both; the same in a stream."""
    text = "<think>\nHm.\n</think>\n\nYes."
    script(text, text)
    message = ask(openai_client, extra_body={"reasoning_format": form}).choices[0].message
    chunks = stream(openai_client, extra_body={"reasoning_format": form})
    assert (message.content, getattr(message, "reasoning_content", "")) == (content, reasoning)
    assert (joined(chunks), joined(chunks, "reasoning_content")) == (content, reasoning)


def test_thoughts_end_with_their_budget(openai_client: openai.OpenAI, script: Script) -> None:
    """The answer goes on behind the message and the tag that close them; the prompt is told and counted once."""
    script("<think>" + "a" * 40, "Yes.")
    answer = ask(openai_client, max_tokens=200,
                 extra_body={"thinking_budget_tokens": 20, "reasoning_budget_message": " Enough."})
    message, usage = answer.choices[0].message, answer.usage
    assert usage
    assert usage.completion_tokens_details
    assert message.content == "Yes."
    reasoning = getattr(message, "reasoning_content", "")
    assert reasoning.startswith("aaa")
    assert reasoning.endswith("a Enough.")
    assert 20 <= (usage.completion_tokens_details.reasoning_tokens or 0) < 40
    assert reasoning.count("a") < usage.completion_tokens < len(f"<think>{reasoning}</think>Yes.")   # "th" is one
    assert usage.prompt_tokens < 60


def test_thoughts_end_when_a_client_says_so(openai_client: openai.OpenAI) -> None:
    """While they are written, if the request wanted that; what the model writes from then on is its answer."""
    messages = [*HI, {"role": "assistant", "content": "", "reasoning_content": "Hm"}]

    def end(name: str) -> Any:
        return openai_client.post("/chat/completions/control", cast_to=object,
                                  body={"id": name, "action": "reasoning_end"})

    for wants, reply in ((True, {"success": True}), (False, {
            "success": False, "message": "reasoning control not enabled for this completion"})):
        with openai_client.chat.completions.create(
                model="tiny", messages=messages, stream=True, max_tokens=6000,
                extra_body={"reasoning_control": wants, "ignore_eos": True, "logit_bias": {"60": -100}}) as chunks:
            assert end(next(chunks).id) == reply
            if wants:
                assert any(choice.delta.content for chunk in chunks for choice in chunk.choices)


def test_a_message_of_the_assistant_is_gone_on_with(openai_client: openai.OpenAI, script: Script) -> None:
    """What it said is not repeated; without a template for the answer the prompt is shorter."""
    script(" there.", "x")
    answer = ask(openai_client, [*HI, {"role": "assistant", "content": "Hello"}])
    assert answer.choices[0].message.content == " there."
    plain = ask(openai_client)
    assert answer.usage
    assert plain.usage
    assert 0 < answer.usage.prompt_tokens - plain.usage.prompt_tokens < 40


def test_structured_answers_are_parsed(openai_client: openai.OpenAI) -> None:
    """The client's own parser makes an object of them, whole and streamed."""
    answer = openai_client.chat.completions.parse(
        model="tiny", messages=HI, response_format=Weather, max_tokens=200, extra_body=SILENT)
    assert isinstance(answer.choices[0].message.parsed, Weather)
    with openai_client.chat.completions.stream(model="tiny", messages=HI, response_format=Weather, max_tokens=200,
                                               extra_body=SILENT) as events:
        streamed = events.get_final_completion()
    assert streamed.choices[0].message.parsed == answer.choices[0].message.parsed


def test_a_format_holds_behind_thoughts_and_beside_tools(openai_client: openai.OpenAI) -> None:
    """A model that thinks is not held to it before it has thought; one that calls a tool is held to the tool's."""
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"enum": [7]}}}
    answer = ask(openai_client, [*HI, {"role": "assistant", "content": "", "reasoning_content": "Hm"}],
                 response_format=form, extra_body={"thinking_budget_tokens": 8})
    assert answer.choices[0].message.content == "7"
    assert answer.choices[0].message.model_extra
    with_tools = ask(openai_client, response_format=form, tools=[WEATHER], max_tokens=200, extra_body=SILENT)
    message = with_tools.choices[0].message
    assert message.tool_calls or message.content == "7"


def test_several_answers_are_told_apart(openai_client: openai.OpenAI) -> None:
    """Each has its role, its text and its end; a seed makes them the same each time."""
    options: dict[str, Any] = {"n": 2, "seed": 7, "temperature": 1.5, "max_tokens": 8, "extra_body": SILENT}
    whole = ask(openai_client, **options)
    chunks = stream(openai_client, **options)
    for index in (0, 1):
        mine = [choice for chunk in chunks for choice in chunk.choices if choice.index == index]
        assert [choice.delta.role for choice in mine].count("assistant") == 1
        assert [choice.finish_reason for choice in mine if choice.finish_reason] == [whole.choices[index].finish_reason]
        assert "".join(choice.delta.content or "" for choice in mine) == whole.choices[index].message.content
    assert whole.choices[0].message.content != whole.choices[1].message.content
    assert whole.usage
    assert whole.usage.completion_tokens <= 16


def test_probabilities_spell_the_content(openai_client: openai.OpenAI, script: Script) -> None:
    """Token for token, in streams too, without thoughts and the end."""
    text = "<think>Hm.</think>\n\nYes."
    script(text, text)
    whole = ask(openai_client, logprobs=True, top_logprobs=2).choices[0]
    chunks = stream(openai_client, logprobs=True, top_logprobs=2)
    assert whole.logprobs
    assert whole.logprobs.content
    told = [each for chunk in chunks for choice in chunk.choices if choice.logprobs
            for each in choice.logprobs.content or []]
    for found in (whole.logprobs.content, told):
        assert bytes(byte for each in found for byte in each.bytes or []).decode().strip() == "Yes."
        assert all(len(each.top_logprobs) == 2 for each in found)


def test_stop_texts_and_limits_end_an_answer(openai_client: openai.OpenAI, script: Script) -> None:
    """A stop text is no part of it."""
    script("One. Two. Three.", "One. Two. Three.")
    stopped, cut = ask(openai_client, stop=[" Two"]), ask(openai_client, max_tokens=4)
    assert (stopped.choices[0].message.content, stopped.choices[0].finish_reason) == ("One.", "stop")
    assert (cut.choices[0].message.content, cut.choices[0].finish_reason) == ("One.", "length")


def test_a_banned_token_is_never_chosen(openai_client: openai.OpenAI) -> None:
    """By its number, as a text."""
    found = ask(openai_client, max_tokens=1, extra_body={**SILENT, "return_tokens": True, "verbose": True}).model_extra
    assert found is not None
    (token,) = found["__verbose"]["tokens"]
    other = ask(openai_client, max_tokens=1, logit_bias={str(token): -100},
                extra_body={**SILENT, "return_tokens": True, "verbose": True}).model_extra
    assert other is not None
    assert other["__verbose"]["tokens"] != [token]


@pytest.mark.parametrize(("options", "message"), [
    ({"tool_choice": "sometimes"}, "tool_choice"),
    ({"tools": [CLOCK], "tool_choice": {"type": "function", "function": {"name": "f"}}}, "there is no tool 'f'"),
    ({"tools": [{"type": "function"}]}, r"tools\[0\]"),
    ({"response_format": {"type": "sound"}}, "response_format"),
    ({"top_logprobs": 3}, "requires logprobs"),
    ({"messages": [{"role": "user", "content": "a" * 9000}]}, "exceeds the available context size"),
    ({"messages": [{"role": "user"}]}, r"messages\[0\]"),
    ({"messages": [*HI, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]}, "2 or more"),
    ({"n": 100}, "'n"),
])
@pytest.mark.parametrize("is_stream", [True, False])
def test_a_bad_request_is_refused(openai_client: openai.OpenAI, options: dict[str, Any], message: str,
                                  is_stream: bool) -> None:
    """Also if it wanted a stream, before any of it: the status is 400 and the text says what is wrong."""
    with pytest.raises(openai.BadRequestError, match=message):
        openai_client.chat.completions.create(**{"model": "tiny", "messages": HI, "stream": is_stream, **options})
