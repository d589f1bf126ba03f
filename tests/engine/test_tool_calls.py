"""Constraints on calls of tools, and grammars of llguidance."""

import json
import re
from typing import Any

import pytest

from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured.constraint import Constraint
from ggpy.engine.structured.tool_calls import ToolCalls
from ggpy.errors import GrammarError
from tests.engine.grammars import CALL, END, accepts, allowed, encode, grammars, start, tokenizer

ADD = {"name": "add", "description": "Adds.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"$ref": "#/$defs/number"}},
    "required": ["a", "b"], "additionalProperties": False, "$defs": {"number": {"type": "integer"}}}}
NOW = {"type": "function", "function": {"name": "now"}}
SUM = '{"name": "add", "arguments": {"a": 1, "b": 2}}'
TIME = '{"name": "now", "arguments": {}}'


def calls(**options: Any) -> str:
    return ToolCalls(tools=[ADD, NOW], **options).source()


@pytest.mark.parametrize(("options", "right", "wrong"), [
    ({}, SUM, SUM + SUM),
    ({}, TIME, SUM.replace("add", "now")),
    ({}, SUM, SUM.replace("2", "2.5")),
    ({"begin": "<t>\n", "end": "\n</t>"}, f"<t>\n{SUM}\n</t>", SUM),
    ({"begin": "<t>", "end": "</t>", "is_parallel": True},
     f"<t>{SUM}</t>\n<t>{TIME}</t><t>{TIME}</t>", f"<t>{SUM}</t>{SUM}"),
    ({"begin": "[", "end": "]", "between": ", ", "is_parallel": True}, f"[{SUM}, {TIME}]", f"[{SUM}][{TIME}]"),
    ({"begin": "[", "end": "]", "between": ", "}, f"[{SUM}]", f"[{SUM}, {TIME}]"),
    ({"begin": "<t>", "end": "</t>", "has_begun": True, "is_parallel": True},
     f"{SUM}</t><t>{TIME}</t>", f"<t>{SUM}</t>"),
    ({"begin": "<t>", "end": "</t>"}, f"<t>\n{SUM}\n</t>", f"<t>\n\n{SUM}</t>"),
    ({"begin": "<f=", "name_end": ">", "end": "</f>", "is_parallel": True},
     '<f=now>{}</f><f=add>{"a": 1, "b": 2}</f>', "<f=now>\n{}</f>"),
    ({"begin": "<ts>", "end": "</ts>", "between": "", "name_begin": "<t>f.", "name_end": ":", "arguments_end": "</t>",
      "is_numbered": True, "is_parallel": True}, "<ts><t>f.now:0:{}</t><t>f.now:1:{}</t></ts>", "<ts></ts>"),
    ({"begin": "<ts>", "between": "", "name_begin": "<t>", "id_end": "<n>", "name_end": "<a>", "arguments_end": "</t>",
      "is_parallel": True}, "<ts><t>a1b2c3d4e5<n>now<a>{}</t><t>0123456789<n>now<a>{}</t>", "<ts><t>a1<n>now<a>{}</t>"),
    ({"between": ">>>", "name_end": "\n", "is_parallel": True}, 'now\n{}>>>add\n{"a": 1, "b": 2}', ">>>now\n{}"),
    ({"name_key": "tool", "arguments_key": "args"}, '{"tool": "now", "args": {}}', TIME),
    ({}, '{\n  "name": "now",\n  "arguments": {}\n}', '{   "name": "now", "arguments": {}}'),
])
def test_shapes_of_calls(options: dict[str, Any], right: str, wrong: str) -> None:
    """One call or several, with what stands before, between and behind them."""
    assert accepts("tools", calls(**options), right)
    assert not accepts("tools", calls(**options), wrong)


TAGS = {"key_begin": "<k=", "text_begin": ">", "json_begin": "!>", "value_end": "</k>"}
NOTE = {"name": "note", "parameters": {
    "type": "object", "required": ["text", "n"], "$defs": {"n": {"type": "integer"}}, "properties": {
        "text": {"type": "string"}, "kind": {"enum": ["a", "b"]}, "n": {"$ref": "#/$defs/n"},
        "rest": {"type": "object"}}}}


@pytest.mark.parametrize("end", ["</k>", "</<call>>"])
@pytest.mark.parametrize(("arguments", "is_right"), [
    ("<k=text>a </p> b\n</k><k=n!>12</k>", True), ("<k=text></k><k=kind>b</k><k=n!>1</k><k=rest!>{}</k>", True),
    ("<k=text>hello<k=n!>12</k>", False), ("<k=text>a</k><k=n!>x</k>", False), ("<k=n!>12</k>", False),
    ("<k=text>a</k><k=kind>c</k><k=n!>1</k>", False), ("<k=text>a</k><k=n!>1</k><k=more!>1</k>", False),
    ("<k=text!>a</k><k=n!>1</k>", False), ("", False)])
def test_arguments_may_stand_between_tags(end: str, arguments: str, is_right: bool) -> None:
    """In the order of the schema, texts as they are and the rest as JSON; what is required has to come. Tags may have
    control tokens."""
    tags = {**TAGS, "value_end": end}
    source = ToolCalls(tools=[NOTE, NOW], begin="<f=", name_end=">", end="</f>", tags=tags).source()
    text = arguments.replace("</k>", end)
    assert accepts_all(ConstraintSpec("tools", source), f"<f=note>{text}</f>") is is_right
    assert accepts("tools", source, "<f=now></f>")


@pytest.mark.parametrize(("others", "right", "wrong"), [
    (True, "<k=a>x</k><k=b!>1</k>", "<k=a!>x</k>"), ({"type": "integer"}, "<k=a!>1</k>", "<k=a>x</k>"),
    (False, "", "<k=a>x</k>")])
def test_arguments_between_tags_may_have_any_names(others: Any, right: str, wrong: str) -> None:
    """Where the schema says so."""
    tool = {"name": "set", "parameters": {"type": "object", "additionalProperties": others}}
    source = ToolCalls(tools=[tool], begin="<f=", name_end=">", end="</f>", tags=TAGS).source()
    assert accepts("tools", source, f"<f=set>{right}</f>")
    assert not accepts("tools", source, f"<f=set>{wrong}</f>")


def test_a_begin_may_be_a_control_token() -> None:
    """As in the vocabularies of many models; its characters one by one are not the same."""
    constraint = start("tools", calls(begin="<call>", end="<call>"))
    assert allowed(constraint) == [{CALL}]
    for token in (CALL, *encode(TIME), CALL):
        constraint.accept(token)
    assert allowed(constraint) == [{END}]


def test_calls_may_come_after_free_text() -> None:
    """The model decides whether to call: until it begins one it may say anything, and end."""
    constraint = start("tools", calls(begin="<t>", end="</t>", has_begun=True), after=("<t>",))
    accept(constraint, "I will add. <t")
    assert END in allowed(constraint)[0]
    accept(constraint, ">" + SUM)
    assert END not in allowed(constraint)[0]
    accept(constraint, "</t>")
    assert constraint.is_finished


def accept(constraint: Constraint, text: str) -> None:
    for token in encode(text):
        constraint.accept(token)


@pytest.mark.parametrize(("source", "message"), [
    ("{}", r"\$.tools: expected a list of tools, found \{\}"),
    ('{"tools": []}', r"\$.tools: expected a list of tools"),
    ('{"tools": [1]}', r"\$.tools\[0\].name: expected the name of a tool, found 1"),
    ('{"tools": [{"name": "a"}], "begin": 1}', r"\$.begin: 1 has the wrong type"),
    ('{"tools": [{"name": "a"}], "start": ""}', r"\$.start: expected one of arguments_end, arguments_key, begin"),
    ('{"tools": [{"name": "a"}, {"name": "a"}]}', r'\$.tools\[1\].name: there is a tool "a" before it'),
    ('{"tools": [{"name": "a"}], "tags": {"key_begin": "<"}}', r"\$.tags: expected texts key_begin, text_begin, json_"),
    (json.dumps({"tools": [NOW, {"type": "function", "function": {"name": "f", "parameters": {
        "properties": {"x": {"minimum": "1"}}}}}]}),
     r'\$.tools\[1\].function.parameters.properties.x.minimum: expected a number, found "1"'),
])
def test_errors_name_the_tool(source: str, message: str) -> None:
    """And the path in its schema."""
    with pytest.raises(GrammarError, match=message):
        start("tools", source)


@pytest.mark.parametrize("options", [{}, {"tags": TAGS, "name_end": ">"}])
@pytest.mark.parametrize(("schema", "path"), [
    ({"properties": {"x": {"oneOf": [{"type": "integer"}, {"type": "number"}]}}}, ".parameters.properties.x"),
    ({"properties": {"x": {"type": "array", "items": {"type": "string", "pattern": "a\\b"}}}},
     ".parameters.properties.x.items")])
def test_errors_of_the_compiler_name_the_place_in_a_tool(options: dict[str, Any], schema: Any, path: str) -> None:
    """Not the lines of a grammar that nobody has written."""
    source = ToolCalls(tools=[NOW, {"name": "f", "parameters": schema}], **options).source()
    with pytest.raises(GrammarError, match=rf"^\$\.tools\[1\]{re.escape(path)}: .* not supported.*$"):
        start("tools", source)


def test_errors_of_the_compiler_name_the_content() -> None:
    """Where that is what it refuses."""
    with pytest.raises(GrammarError, match=r"^\$\.content: oneOf constraints are not supported"):
        start("tools", calls(content={"oneOf": [{"type": "integer"}, {"type": "number"}]}))


def test_grammars_of_llguidance() -> None:
    """With schemas in them, comments, and texts that look like options."""
    source = '// max_tokens=1\nstart: "stop=" /[a\\/]/ x  # %json 1\nx: %json {"title": "t", "type": "null"} "!"\n'
    assert accepts("lark", source, "stop=/null!")
    assert not accepts("lark", source, "stop=/1!")


@pytest.mark.parametrize(("source", "message"), [
    ("start: x", "unknown name"),
    ("start", "Expected"),
    ('start: "a"\n  x: %json {"not": {}}', r"line 2: \$.not: cannot be enforced"),
    ('start: %json {"a"', r"line 1: \$: not JSON"),
    ('start: "a"\nx[max_tokens=3]: /a/', "line 2: the option max_tokens is not supported"),
    ('start: r0\n' + "".join(f"r{i}: r{i + 1}\n" for i in range(5000)), "the grammar has 5,001 rules, expected 4,000"),
    ("start: " + "x" * 300_000, "the grammar has 300,007 characters"),
    ("start: " + "(" * 100_000, "."),
])
def test_errors_of_llguidances_grammars(source: str, message: str) -> None:
    """With the line, where it is known."""
    with pytest.raises(GrammarError, match=message):
        start("lark", source)


def test_an_answer_in_json_may_take_the_place_of_calls() -> None:
    """As a request with tools and a format of its answer wants it."""
    source = calls(begin="<t>", end="</t>", content={"type": "array", "items": {"type": "integer"}})
    assert accepts("tools", source, f"<t>{SUM}</t>")
    assert accepts("tools", source, "[1, 2]")
    assert not accepts("tools", source, '["a"]')
    assert not accepts("tools", source, f"[1]<t>{SUM}</t>")


@pytest.mark.parametrize("end", ["</think>", "<call>", "ab<call>"])
@pytest.mark.parametrize("begin", ["<think>", "<call>", ""])
def test_reasoning_is_free_and_what_follows_is_not(begin: str, end: str) -> None:
    """Whether their tags are control tokens or texts. They may be left out, unless they have begun."""
    spec = ConstraintSpec("json_schema", '{"type": "integer"}', reasoning=(begin, end))
    assert accepts_all(spec, f'{begin}he{{"a": ab}} \n\n{end}\n\n12')
    assert accepts_all(spec, f"{begin}{end}12")
    assert not accepts_all(spec, f"{begin}hello{end}true")
    assert not accepts_all(spec, f"{begin}hello")
    assert accepts_all(spec, "12") == (begin != "")
    assert not accepts_all(spec, f"12{begin}hello{end}")


def test_reasoning_may_stand_before_calls_and_grammars() -> None:
    """All kinds of constraints take them."""
    think = ("<think>", "</think>")
    assert accepts_all(ConstraintSpec("tools", calls(), reasoning=think), f"<think>ab</think> {SUM}")
    assert accepts_all(ConstraintSpec("gbnf", 'root ::= "ab"', reasoning=think), "<think>12</think>\nab")
    assert accepts_all(ConstraintSpec("regex", "ab", reasoning=think), "<think>12</think>\nab")
    assert accepts_all(ConstraintSpec("lark", "start: /ab/", reasoning=think), "<think>12</think>\nab")
    assert accepts_all(ConstraintSpec("json", reasoning=think), '<think>12</think>{"ab": 1}')


def accepts_all(spec: ConstraintSpec, text: str) -> bool:
    """Whether `text`, in which control tokens stand for themselves, is all of an answer."""
    constraint = grammars().start(spec)
    for token in tokenizer().encode(text, add_special=False, parse_special=True):
        if token not in allowed(constraint)[0]:
            return False
        constraint.accept(token)
    return END in allowed(constraint)[0]


@pytest.mark.parametrize("begin", ["<think>", "<call>", ""])
def test_calls_in_reasoning_are_none(begin: str) -> None:
    """A model may think about how it will call; what it says behind its reasoning counts."""
    spec = ConstraintSpec("tools", calls(begin="<t>", end="</t>", has_begun=True), ("<t>",), (begin, "</think>"))
    assert accepts_all(spec, f"{begin}ab <t>12</think><t>{SUM}</t>")
    assert accepts_all(spec, f"{begin}ab <t>12</think>hello")
    assert not accepts_all(spec, f"{begin}ab <t>12</think><t>12</t>")
    assert accepts_all(spec, f"{begin}<t></think> <t> {TIME}</t>")


def test_a_call_before_reasoning_is_one() -> None:
    """The first of both counts."""
    spec = ConstraintSpec("tools", calls(begin="<t>", end="</t>", has_begun=True), ("<t>",), ("<think>", "</think>"))
    assert accepts_all(spec, f"<t>{SUM}</t>")
    assert not accepts_all(spec, "<t><think>12</think>")


def test_arguments_may_be_free() -> None:
    """Of a format that has no JSON: the name is that of a tool, and marks are control tokens that may come."""
    source = calls(begin="<f=", name_end=">\n", is_free=True, marks=["<call>", "</f>"])
    assert accepts("tools", source, "<f=add>\n<a>1</a> </f>")
    assert accepts("tools", source, "<f=now>\n")
    assert not accepts("tools", source, "<f=sub>\n")
    assert not accepts("tools", source, "hello")
    spec = ConstraintSpec("tools", source)
    assert accepts_all(spec, "<f=now>\n<call>ab<call><call>12")
    assert not accepts_all(spec, "<f=now>\n<bos>")
