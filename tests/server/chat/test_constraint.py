"""What answers of chats are held to."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ggpy.engine.constraint import ConstraintSpec
from ggpy.errors import RequestError
from ggpy.server.chat.constraint import ToolChoice, ToolName, answer_constraint, check_choice
from ggpy.server.errors import FieldError
from ggpy.text.reasoning import THINK
from ggpy.text.tool_calls import FORMATS, AnswerStyle, parse_answer
from tests.engine.grammars import accepts

BY_NAME = {each.name: each for each in FORMATS}
TOOLS = [{"type": "function", "function": {"name": name}} for name in ("f", "g")]
NUMBER = ConstraintSpec("json_schema", '{"type": "integer"}')
PLAIN, THINKING = (AnswerStyle(BY_NAME["hermes"], THINK, knows) for knows in (False, True))


def constraint(style: AnswerStyle, content: ConstraintSpec | None = None, **options: Any) -> ConstraintSpec:
    found = answer_constraint(content, style, **{"is_open": False, "tools": TOOLS, **options})
    assert found is not None
    return found


def names(spec: ConstraintSpec) -> list[str]:
    return [tool["function"]["name"] for tool in json.loads(spec.source)["tools"]]


def test_calls_are_held_to_their_schemas_once_they_have_begun() -> None:
    """The model may call or not; reasoning and text before a call are free, and what is in reasoning is no call."""
    found = constraint(THINKING)
    assert (found.kind, found.after, names(found)) == ("tools", ("<tool_call>",), ["f", "g"])
    assert (found.reasoning, constraint(PLAIN).reasoning) == (("<think>", "</think>"), None)
    assert json.loads(found.source)["has_begun"]


@pytest.mark.parametrize(("choice", "tools", "is_parallel"), [("required", ["f", "g"], True),
                                                              (ToolName("g"), ["g"], False)])
def test_calls_that_have_to_come_are_written_from_the_start(choice: ToolChoice, tools: list[str],
                                                            is_parallel: bool) -> None:
    """All of them, or one call of the tool that is named."""
    found = constraint(PLAIN, choice=choice)
    assert (found.after, found.reasoning, names(found)) == ((), None, tools)
    source = json.loads(found.source)
    assert (source.get("has_begun", False), source["is_parallel"]) == (False, is_parallel)


@pytest.mark.parametrize(("options", "reasoning"), [
    ({}, ("<think>", "</think>")), ({"is_open": True}, ("", "</think>")), ({"is_off": True}, None),
])
def test_reasoning_stands_in_front_of_what_is_constrained(options: dict[str, Any],
                                                        reasoning: tuple[str, str] | None) -> None:
    """They may be there, or have begun in the prompt, or are off."""
    assert constraint(THINKING, NUMBER, tools=(), **options) == replace(NUMBER, reasoning=reasoning)
    assert constraint(THINKING, choice="required", **options).reasoning == reasoning


def test_json_may_take_the_place_of_calls() -> None:
    """Where a request has tools and a format of its answer; a call that has to come has none."""
    assert json.loads(constraint(PLAIN, NUMBER).source)["content"] == {"type": "integer"}
    assert json.loads(constraint(PLAIN, ConstraintSpec("json")).source)["content"] == {"type": "object"}
    assert json.loads(constraint(PLAIN, NUMBER, choice="required").source)["content"] is None


def test_formats_without_json_are_left_to_the_model() -> None:
    """Their arguments are no JSON; a call that has to come begins with the name of a tool."""
    style = AnswerStyle(BY_NAME["gemma"], THINK, False)
    assert answer_constraint(None, style, is_open=False, tools=TOOLS) is None
    assert constraint(style, NUMBER) == NUMBER
    found = constraint(style, choice=ToolName("g"))
    source = json.loads(found.source)
    assert (source["begin"], names(found), source["name_end"]) == ("<|tool_call>call:", ["g"], "{")
    assert source["is_free"]


DSML = ('<｜DSML｜{0}>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="false">1</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="b" string="true">x <y\n</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜{0}>')


@pytest.mark.parametrize(("name", "text", "wrong"), [
    ("deepseek-tags", DSML.format("function_calls"), ">1<"), ("deepseek-tool-tags", DSML.format("tool_calls"), ">1<"),
    ("qwen-coder", "<tool_call>\n<function=f>\n<parameter=a>\n1\n</parameter>\n<parameter=b>\nx <y\n\n</parameter>\n"
                   "</function>\n</tool_call>", "\n1\n"),
    ("seed", "<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n<parameter=b>x <y\n</parameter>\n"
             "</function>\n</seed:tool_call>", ">1<"),
    ("glm", "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n<arg_key>b</arg_key>\n<arg_value>x <y\n"
            "</arg_value>\n</tool_call>", ">1<"),
    ("minimax", '<minimax:tool_call>\n<invoke name="f">\n<parameter name="a">1</parameter>\n<parameter name="b">x <y\n'
                '</parameter>\n</invoke>\n</minimax:tool_call>', ">1<"),
    ("minicpm", '<function name="f"><param name="a">1</param><param name="b">x <y\n</param></function>', ">1<"),
    ("functionary", 'f\n{"a": 1, "b": "x <y\\n"}', '1,'),
    ("solar", '<|tool_calls|><|tool_call:begin|>abcdefghi0<|tool_call:name|>f<|tool_call:args|>{"a": 1, "b": "x <y\\n"}'
              '<|tool_call:end|>', "1,")])
def test_calls_that_have_to_come_are_those_that_are_read(name: str, text: str, wrong: str) -> None:
    """What the grammar lets a model write, the parser takes for that call; arguments meet their schemas."""
    tools: list[Any] = [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "required": ["a", "b"],
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}}}}]
    found = constraint(AnswerStyle(BY_NAME[name], THINK, False), choice="required", tools=tools)
    assert (found.after, found.reasoning) == ((), None)
    assert accepts("tools", found.source, text)
    assert not accepts("tools", found.source, text.replace(wrong, wrong.replace("1", "true")))
    assert not accepts("tools", found.source, "Hello")
    (call,) = parse_answer(text, BY_NAME[name], tools).calls
    assert (call.name, json.loads(call.arguments)) == ("f", {"a": 1, "b": "x <y\n"})


def test_solar_thinks_in_front_of_a_call_that_has_to_come() -> None:
    """What stands between reasoning and calls is not what stands before content."""
    found = constraint(AnswerStyle(BY_NAME["solar"], THINK, True), choice="required", is_open=True)
    assert found.reasoning == ("", "<|end|><|begin|>assistant")


def test_a_call_on_a_channel_of_its_own_comes_behind_reasoning() -> None:
    """The tags around reasoning are not those in front of content."""
    style = AnswerStyle(BY_NAME["harmony"], THINK, True)
    found = constraint(style, choice="required")
    source = json.loads(found.source)
    assert (source["begin"], source["is_free"]) == ("<|channel|>commentary to=functions.", False)
    assert found.reasoning == ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant")
    assert constraint(style, choice="required", is_off=True).reasoning is None


def test_content_behind_channels_begins_with_its_channel() -> None:
    """What a model says in others is free."""
    style = AnswerStyle(BY_NAME["harmony"], THINK, True)
    assert constraint(style, NUMBER, tools=()).after == ("<|channel|>final<|message|>",)


def test_tools_and_a_grammar_do_not_go_together() -> None:
    """A request that forbids calls may have both."""
    grammar = ConstraintSpec("gbnf", 'root ::= "a"')
    with pytest.raises(RequestError, match="Cannot use custom grammar constraints with tools"):
        answer_constraint(grammar, PLAIN, is_open=False, tools=TOOLS)
    assert constraint(PLAIN, grammar, choice="none") == grammar


@pytest.mark.parametrize(("tools", "choice", "message"), [
    ([{"type": "function"}], "auto", r"tools\[0\]"),
    ([*TOOLS, 7], "auto", r"tools\[2\]"),
    ([{"function": {"name": ""}}], "auto", r"tools\[0\]"),
    (TOOLS, ToolName("h"), "there is no tool 'h'; there are: f, g"),
])
def test_tools_have_names(tools: list[Any], choice: ToolChoice, message: str) -> None:
    """And the one that has to be called is among them."""
    with pytest.raises(FieldError, match=message):
        check_choice(tools, choice)
