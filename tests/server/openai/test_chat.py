"""/v1/chat/completions: what llama-server has beside OpenAI's fields, and the routes around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ggpy.server.chat.core import warn_of_tools
from tests.server.conftest import CHATML, Served

CHATS = "/v1/chat/completions"
HI = [{"role": "user", "content": "Hi"}]
# a template that opens thoughts by itself, whatever it is told
THINKING = CHATML.replace("{{ '<|im_start|>assistant\n' }}", "{{ '<|im_start|>assistant\n<think>\n' }}")


def chat(server: Served, **fields: Any) -> Any:
    reply = server.post(CHATS, {"messages": HI, "max_tokens": 6, "ignore_eos": True, **fields})
    assert reply.status == 200, reply.data
    return reply.json


def events(server: Served, **fields: Any) -> list[Any]:
    reply = server.post(CHATS, {"messages": HI, "max_tokens": 6, "ignore_eos": True, "stream": True, **fields})
    assert reply.status == 200, reply.data
    assert reply.events[-1] == "[DONE]"
    return reply.events[:-1]


def test_a_reply_has_timings_and_a_fingerprint(server: Served) -> None:
    """And nothing native, unless that is asked for."""
    body = chat(server, cache_prompt=False)
    assert body["system_fingerprint"].startswith("b")
    assert (body["timings"]["predicted_n"], body["timings"]["cache_n"]) == (6, 0)
    assert body["choices"][0]["finish_reason"] == "length"
    assert "logprobs" not in body["choices"][0]
    assert "__verbose" not in body


def test_the_native_object_stands_beside(server: Served) -> None:
    """With the prompt as the model read it, and the settings."""
    native = chat(server, verbose=True, temperature=0.5)["__verbose"]
    assert native["prompt"] == "<|bos|><|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (native["tokens_predicted"], native["generation_settings"]["temperature"]) == (6, 0.5)
    *_, last = events(server, verbose=True)
    assert last["__verbose"]["prompt"] == native["prompt"]


def test_paths_without_v1_are_the_same(server: Served) -> None:
    """All routes have both."""
    assert server.post("/chat/completions", {"messages": HI, "max_tokens": 1}).status == 200


def test_timings_stand_in_each_event_if_asked_for(server: Served) -> None:
    """But in the first one, which has the role alone; else in the last."""
    first, *others = events(server, timings_per_token=True)
    assert "timings" not in first
    assert all("timings" in event for event in others)
    *others, last = events(server)
    assert [("timings" in event) for event in others] == [False] * len(others)
    assert last["timings"]["predicted_n"] == 6


def test_progress_comes_first(server: Served) -> None:
    """The role is told once, with the first of it."""
    told = events(server, messages=[{"role": "user", "content": "Hi " * 30}], return_progress=True, cache_prompt=False)
    progress = [event["prompt_progress"] for event in told if "prompt_progress" in event]
    assert progress[0]["processed"] == progress[0]["cache"] == 0
    assert progress[-1]["processed"] == progress[-1]["total"] > 100
    roles = [event["choices"][0]["delta"].get("role") for event in told]
    assert roles == ["assistant", *[None] * (len(roles) - 1)]


@pytest.mark.parametrize("prefix", ["", "/v1"])
def test_tokens_of_a_chat_are_counted(server: Served, prefix: str) -> None:
    """As a chat would read them."""
    counted = server.post(f"{prefix}/chat/completions/input_tokens", {"messages": HI}).json
    assert counted == {"object": "response.input_tokens", "input_tokens": chat(server)["usage"]["prompt_tokens"]}


def test_a_prompt_that_does_not_fit_says_both_sizes(server: Served) -> None:
    """Also where a stream was wanted."""
    for is_stream in (False, True):
        reply = server.post(CHATS, {"messages": [{"role": "user", "content": "x" * 400}], "stream": is_stream})
        assert (reply.status, reply.error["type"], reply.error["n_ctx"]) == (400, "exceed_context_size_error", 256)
        assert reply.error["n_prompt_tokens"] > 400


def test_schemas_and_grammars_hold_the_answer(server: Served) -> None:
    """In all the ways that llama-server takes them."""
    for fields in ({"json_schema": {"const": 42}}, {"grammar": 'root ::= "42"'},
                   {"response_format": {"type": "json_object", "schema": {"const": 42}}},
                   {"response_format": {"type": "json_schema", "json_schema": {"schema": {"const": 42}}}}):
        assert chat(server, max_tokens=20, ignore_eos=False, **fields)["choices"][0]["message"]["content"] == "42"


@pytest.mark.parametrize("fields", [
    {"messages": None}, {"messages": "Hi"}, {"messages": [7]}, {"messages": [{}]}, {"messages": []},
    {"messages": [{"role": 7, "content": "Hi"}]}, {"messages": [{"role": "user", "content": 7}]},
    {"json_schema": {}, "grammar": 'root ::= "a"'}, {"grammar": "root ::= ("}, {"response_format": "json"},
    {"response_format": {"type": "json_object", "schema": 7}},
    {"response_format": {"type": "json_object", "schema": {"type": "hiccup"}}},
    {"chat_template_kwargs": {"enable_thinking": "no"}}, {"chat_template_kwargs": {"messages": []}},
    {"reasoning_format": "loud"}, {"continue_final_message": 7}, {"tools": {}}, {"tool_choice": {"type": "function"}},
    {"add_generation_prompt": True, "continue_final_message": True}, {"stream_options": 1}, {"top_logprobs": -1},
    {"logprobs": True, "top_logprobs": 10**6}, {"thinking_budget_tokens": "many"},
])
def test_what_is_wrong_with_a_field_is_told(server: Served, fields: dict[str, Any]) -> None:
    """Whole or as a stream that never begins."""
    for is_stream in (False, True):
        reply = server.post(CHATS, {"messages": HI, "max_tokens": 2, "stream": is_stream, **fields})
        assert (reply.status, reply.error["type"]) == (400, "invalid_request_error")


def test_tools_need_a_template_that_writes_them(server: Served, make_server: Callable[..., Served],
                                                caplog: pytest.LogCaptureFixture) -> None:
    """They are left out where it does not, as llama-server does, with a warning; without Jinja they are an error."""
    warn_of_tools.cache_clear()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    plain = chat(server, tools=tools)
    chat(server, tools=tools)
    assert caplog.text.count("tiny: its chat template does not write tools") == 1
    assert plain["usage"]["prompt_tokens"] == chat(server)["usage"]["prompt_tokens"]
    assert "tool_calls" not in plain["choices"][0]["message"]
    for fields in ({"tools": tools}, {"tool_choice": "none"}):
        reply = make_server(uses_jinja=False).post(CHATS, {"messages": HI, **fields})
        assert (reply.status, "requires --jinja" in reply.error["message"]) == (400, True)


@pytest.mark.parametrize(("fields", "message"), [
    ({"tool_choice": "required"}, '"tiny" does not support tools'),
    ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, '"tiny" does not support tools'),
    ({"parameters": {"type": "objekt"}}, "tools[0].parameters"),
])
def test_tools_that_are_left_out_are_checked(server: Served, fields: dict[str, Any], message: str) -> None:
    """None of them can have to be called, and schemas are as wrong as where they are written."""
    given = dict(fields)
    function = {"name": "f", "parameters": given.pop("parameters", {"type": "object"})}
    reply = server.post(CHATS, {"messages": HI, "max_tokens": 2, **given,
                                "tools": [{"type": "function", "function": function}]})
    assert reply.status == 400
    assert message in reply.error["message"]


def test_thoughts_that_the_template_opens_are_closed_where_they_are_off(make_server: Callable[..., Served]) -> None:
    """By the server's settings, the request's, or a budget of none; else all of the answer is thoughts."""
    thinking, silent = make_server(chat_template=THINKING), make_server(chat_template=THINKING, reasoning="off")
    body = {"messages": HI}
    assert thinking.post("/apply-template", body).json["prompt"].endswith("assistant\n<think>\n")
    assert silent.post("/apply-template", body).json["prompt"].endswith("assistant\n<think>\n</think>")
    for fields in ({"reasoning_effort": "none"}, {"chat_template_kwargs": {"enable_thinking": False}},
                   {"reasoning_budget_tokens": 0}):
        prompt = thinking.post("/apply-template", {**body, **fields}).json["prompt"]
        assert prompt.endswith("<think>\n</think>")
    message = chat(thinking, temperature=0)["choices"][0]["message"]
    assert (message["content"], bool(message["reasoning_content"])) == ("", True)
    assert "reasoning_content" not in chat(silent)["choices"][0]["message"]


def test_thoughts_of_no_chat_cannot_be_ended(server: Served) -> None:
    """One that has ended is none."""
    def end(name: str, action: str = "reasoning_end") -> Any:
        return server.post(f"{CHATS}/control", {"id": name, "action": action})

    for name in ("chatcmpl-none", chat(server, reasoning_control=True)["id"]):
        assert end(name).json == {"success": False, "message": "no active completion for this id"}
    assert (end("").status, end("a", "reasoning_begin").status) == (400, 400)
