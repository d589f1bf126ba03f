"""Responses through the official OpenAI client."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import openai
import pydantic
import pytest

from ggpy.engine.messages import Generate, Tokens
from ggpy.errors import EngineError
from tests.clients.conftest import KEY
from tests.server.conftest import Served

Script = Callable[..., None]

LOOK: Any = {"type": "function", "name": "look", "description": "Looks at a thing", "strict": True, "parameters": {
    "type": "object", "properties": {"thing": {"enum": ["cat", "dog"]}}, "required": ["thing"],
    "additionalProperties": False}}
CALL = '<tool_call>\n{"name": "look", "arguments": {"thing": "cat"}}\n</tool_call>'
TWO_CALLS = f"{CALL}\n{CALL.replace('cat', 'dog')}"


class Animal(pydantic.BaseModel):
    """What an answer shall be."""

    name: str
    legs: int


def raw_events(served: Served, **fields: Any) -> list[dict[str, Any]]:
    """The events of a stream, as they are on the wire."""
    reply = served.post("/v1/responses", {"input": "Hi", "stream": True, **fields}, Authorization=f"Bearer {KEY}")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/event-stream"), reply.data
    blocks = [block.split(b"\n") for block in reply.data.split(b"\n\n") if block.startswith(b"event:")]
    events = [json.loads(data.removeprefix(b"data: ")) for _, data in blocks]
    assert [name.removeprefix(b"event: ").decode() for name, _ in blocks] == [event["type"] for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def test_a_response_has_what_the_client_reads(openai_client: openai.OpenAI, script: Script) -> None:
    """Every field that its type demands, and those of the request."""
    script("Hello there")
    response = openai_client.responses.create(model="tiny", input="Hi", instructions="Be kind", temperature=0.5,
                                              metadata={"a": "b"}, store=True)
    assert response.id.startswith("resp_")
    assert (response.object, response.status, response.output_text) == ("response", "completed", "Hello there")
    assert (response.instructions, response.temperature, response.metadata) == ("Be kind", 0.5, {"a": "b"})
    assert (response.error, response.incomplete_details, response.tools) == (None, None, [])
    assert (response.parallel_tool_calls, response.tool_choice) == (True, "auto")
    [message] = response.output
    assert message.type == "message"
    assert message.status == "completed"
    assert message.id.startswith("msg_")
    assert type(response).model_validate(response.to_dict(), strict=True)


def test_usage_tells_what_was_cached(openai_client: openai.OpenAI, script: Script) -> None:
    """All of a prompt but its last token, the second time."""
    script("One", "Two")
    for n_uncached in (None, 1):
        usage = openai_client.responses.create(model="tiny", input="How are you today?").usage
        assert usage is not None
        details = usage.input_tokens_details
        assert usage.total_tokens == usage.input_tokens + usage.output_tokens
        assert details.cached_tokens + details.cache_write_tokens == usage.input_tokens
        if n_uncached is not None:
            assert usage.input_tokens - details.cached_tokens == n_uncached


def test_a_text_that_is_cut_off_is_incomplete(openai_client: openai.OpenAI, script: Script) -> None:
    """The response and the message."""
    script("Hello there")
    response = openai_client.responses.create(model="tiny", input="Hi", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details is not None
    assert response.incomplete_details.reason == "max_output_tokens"
    [message] = response.output
    assert message.type == "message"
    assert message.status == "incomplete"


def test_a_stream_is_put_together_by_the_client(openai_client: openai.OpenAI, script: Script) -> None:
    """Thoughts, text and calls, each an item that begins, grows and ends."""
    script(f"<think>\nHm, a cat\n</think>\n\nI look.\n{TWO_CALLS}")
    with openai_client.responses.stream(model="tiny", input="Look", tools=[LOOK]) as stream:
        kinds = [event.type for event in stream]
        response = stream.get_final_response()
    thoughts, message, first, second = response.output
    assert thoughts.type == "reasoning"
    assert thoughts.content is not None
    assert thoughts.content[0].text == "Hm, a cat"
    assert (message.type, response.output_text) == ("message", "I look.")
    for call, thing in ((first, "cat"), (second, "dog")):
        assert call.type == "function_call"
        assert (call.name, call.parsed_arguments, call.status) == ("look", {"thing": thing}, "completed")
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert kinds.count("response.output_item.added") == kinds.count("response.output_item.done") == 4
    assert response.usage is not None
    assert response.usage.output_tokens_details.reasoning_tokens > 0


def test_every_event_of_a_stream_has_its_places(served: Served, script: Script) -> None:
    """An item's in the output, a text's in the item; a response is the same whole."""
    answer = f"<think>\nHm\n</think>\n\nI look.\n{CALL}"
    script(answer, answer)
    events = raw_events(served, tools=[LOOK])
    ids: dict[int, str] = {}
    for event in events:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(ids)
            ids[len(ids)] = event["item"]["id"]
        elif "item_id" in event:
            assert event["item_id"] == ids[event["output_index"]]
            assert event.get("content_index", 0) == 0
            assert ("content_index" in event) == ("function_call" not in event["type"])
        if "output_text" in event["type"]:
            assert event["logprobs"] == []
    assert [event["item"]["type"] for event in events if event["type"] == "response.output_item.done"] == [
        "reasoning", "message", "function_call"]
    last = events[-1]["response"]
    whole = served.post("/v1/responses", {"input": "Hi", "tools": [LOOK]}, Authorization=f"Bearer {KEY}").json
    assert anonymous(whole["output"]) == anonymous(last["output"])
    assert whole.keys() - {"timings"} == last.keys()


def anonymous(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in output]


def test_deltas_add_up_to_what_is_done(served: Served, script: Script) -> None:
    """Of thoughts, text and arguments."""
    script(f"<think>\nHm, a cat\n</think>\n\nI look at it.\n{CALL}")
    texts: dict[str, str] = {}
    for event in raw_events(served, tools=[LOOK]):
        kind = event["type"].rpartition(".")[0]
        if event["type"].endswith(".delta"):
            texts[kind] = texts.get(kind, "") + event["delta"]
        elif kind in texts:
            assert texts[kind] == event["arguments" if "arguments" in kind else "text"]
    assert texts == {"response.reasoning_text": "Hm, a cat", "response.output_text": "I look at it.",
                     "response.function_call_arguments": '{"thing": "cat"}'}


def test_a_conversation_with_a_call_goes_on_from_the_cache(openai_client: openai.OpenAI, script: Script) -> None:
    """What the model wrote is sent back as the items that it became, and is found again."""
    script(CALL, "It is a cat")
    said: list[Any] = [{"role": "user", "content": "What is there?"}]
    first = openai_client.responses.create(model="tiny", input=said, tools=[LOOK])
    [call] = first.output
    assert call.type == "function_call"
    said += [*first.output, {"type": "function_call_output", "call_id": call.call_id, "output": "a cat"}]
    second = openai_client.responses.create(model="tiny", input=said, tools=[LOOK])
    assert second.output_text == "It is a cat"
    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens_details.cached_tokens >= first.usage.input_tokens


def test_thoughts_are_found_again_by_clients_that_keep_only_what_is_encrypted(
        openai_client: openai.OpenAI, script: Script) -> None:
    """The prompt is the same as with their text."""
    script(f"<think>\nHm\n</think>\n\n{CALL}")
    said: list[Any] = [{"role": "user", "content": "What is there?"}]
    response = openai_client.responses.create(model="tiny", input=said, tools=[LOOK], store=False,
                                              include=["reasoning.encrypted_content"])
    thoughts, call = response.output
    assert thoughts.type == "reasoning"
    assert call.type == "function_call"
    call_object: Any = call.to_dict()
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "a cat"}
    kept: Any = {"type": "reasoning", "summary": [], "encrypted_content": thoughts.encrypted_content}
    written: Any = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    counts = [openai_client.responses.input_tokens.count(model="tiny", tools=[LOOK], input=[
        *said, *first, call_object, result]).input_tokens for first in ([kept], [written], [])]
    assert counts[0] == counts[1] > counts[2]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "look"}])
def test_a_call_can_be_demanded(openai_client: openai.OpenAI, choice: Any) -> None:
    """Whatever the model is: its arguments fit the schema."""
    response = openai_client.responses.create(model="tiny", input="Look", tools=[LOOK], tool_choice=choice,
                                              parallel_tool_calls=False, reasoning={"effort": "none"})
    [call] = response.output
    assert call.type == "function_call"
    assert call.name == "look"
    assert json.loads(call.arguments)["thing"] in ("cat", "dog")


def test_a_text_can_be_held_to_a_class(openai_client: openai.OpenAI, script: Script) -> None:
    """The client reads it as one."""
    script('{"name": "cat", "legs": 4}')
    response = openai_client.responses.parse(model="tiny", input="An animal", text_format=Animal)
    assert response.output_parsed == Animal(name="cat", legs=4)


def test_a_format_constrains_the_text(openai_client: openai.OpenAI) -> None:
    """Without it, this model writes no JSON."""
    schema = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"],
              "additionalProperties": False}
    response = openai_client.responses.create(model="tiny", input="Which?", reasoning={"effort": "none"}, text={
        "format": {"type": "json_schema", "name": "kind", "schema": schema}})
    assert json.loads(response.output_text)["kind"] in ("cat", "dog")


def test_probabilities_come_with_the_text(openai_client: openai.OpenAI, script: Script) -> None:
    """In deltas and whole."""
    script("Hello", "Hello")
    whole = openai_client.responses.create(model="tiny", input="Hi", top_logprobs=2,
                                           include=["message.output_text.logprobs"])
    [message] = whole.output
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.logprobs is not None
    assert b"".join(bytes(one.bytes) for one in part.logprobs).startswith(b"Hello")
    assert {len(one.top_logprobs) for one in part.logprobs} == {2}
    streamed = [one.token for event in openai_client.responses.create(
        model="tiny", input="Hi", top_logprobs=2, stream=True) if event.type == "response.output_text.delta"
        for one in event.logprobs]
    assert "".join(streamed) == "Hello"


def test_a_stream_that_is_cut_off_ends_as_incomplete(served: Served, script: Script) -> None:
    """But not for clients of llama-server, which wait for `completed`; they get timings and progress as well."""
    script("Hello there", "Hello there")
    last = raw_events(served, max_output_tokens=3)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "incomplete")
    *events, last = raw_events(served, max_output_tokens=3, timings_per_token=True, return_progress=True)
    assert (last["type"], last["response"]["status"]) == ("response.completed", "incomplete")
    assert last["timings"]["predicted_n"] == 3
    assert any("prompt_progress" in event for event in events if event["type"] == "response.in_progress")
    assert any("timings" in event for event in events if event["type"] == "response.output_text.delta")


def test_tokens_of_an_input_are_counted(openai_client: openai.OpenAI, script: Script) -> None:
    """As many as the response itself reads, tools included."""
    script("Yes")
    counted = openai_client.responses.input_tokens.count(model="tiny", input="Hi", tools=[LOOK])
    usage = openai_client.responses.create(model="tiny", input="Hi", tools=[LOOK]).usage
    assert usage is not None
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", usage.input_tokens)


def test_nothing_is_stored(openai_client: openai.OpenAI) -> None:
    """Neither to be read again nor to be gone on with."""
    with pytest.raises(openai.NotFoundError, match="there is no response 'resp_1'"):
        openai_client.responses.retrieve("resp_1")
    with pytest.raises(openai.BadRequestError, match="this server stores no responses"):
        openai_client.responses.create(model="tiny", input="Hi", previous_response_id="resp_1")


def test_a_prompt_that_is_too_long_is_a_bad_request(openai_client: openai.OpenAI) -> None:
    """In streams too, before anything is sent."""
    for is_stream in (False, True):
        with pytest.raises(openai.BadRequestError, match="exceeds the available context size"):
            openai_client.responses.create(model="tiny", input="x" * 9000, stream=is_stream)


def test_a_stream_that_fails_says_so_in_its_last_event(
        served: Served, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what was said until then."""
    script("Hello there")
    loaded = served.server.models.single.loaded
    assert loaded is not None
    generate = loaded.client.generate

    async def failing(job: Generate) -> AsyncGenerator[Tokens, None]:
        async with aclosing(generate(job)) as events:
            async for event in events:
                yield event
                if event.text:
                    raise EngineError("the engine is gone")

    monkeypatch.setattr(loaded.client, "generate", failing)
    last = raw_events(served)[-1]
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": "server_error", "message": "the engine is gone"}
