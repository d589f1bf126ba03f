"""Which members the objects of JSON schemas may have."""

import json
from typing import Any

import pytest

from ggpy.engine.structured.closed_objects import read_schema
from ggpy.engine.structured.tool_calls import ToolCalls
from ggpy.errors import GrammarError
from tests.engine.grammars import accepts

A = {"type": "object", "properties": {"a": {"type": "integer"}}}
B = {"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]}
C = {"type": "object", "properties": {"c": {"type": "integer"}}, "required": ["c"]}


@pytest.mark.parametrize(("schema", "right", "wrong"), [
    (A, {"a": 1}, {"a": 1, "x": 1}),
    ({"type": "object", "properties": {}}, {}, {"x": 1}),
    ({"properties": {"a": {"type": "array", "items": A}}}, {"a": [{"a": 1}]}, {"a": [{"x": 1}]}),
    ({"type": "object", "properties": {"a": {}}, "patternProperties": {"^x": {"type": "null"}}},
     {"a": 1, "x1": None}, {"y": None}),
    ({"anyOf": [A, B]}, {"b": 1}, {"a": 1, "b": 1}),
    ({"oneOf": [{"properties": {"k": {"const": k}}, "required": ["k"], "type": "object"} for k in "ab"]},
     {"k": "b"}, {"k": "b", "x": 1}),
    ({"$defs": {"a": A}, "$ref": "#/$defs/a"}, {"a": 1}, {"x": 1}),
    ({"type": "object", "properties": {"inner": {"$ref": "#"}}}, {"inner": {"inner": {}}}, {"inner": {"x": {}}}),
    ({"allOf": [A, B]}, {"a": 1, "b": 1}, {"a": 1, "b": 1, "x": 1}),
    ({"allOf": [A]}, {"a": 1}, {"x": 1}),
    ({"$defs": {"a": A}, "allOf": [{"$ref": "#/$defs/a"}, B]}, {"a": 1, "b": 1}, {"b": 1, "x": 1}),
    ({"$defs": {"a": A}, "$ref": "#/$defs/a", **B}, {"b": 1, "a": 1}, {"b": 1, "x": 1}),
    ({**A, "anyOf": [B, C]}, {"a": 1, "c": 1}, {"c": 1, "x": 1}),
    ({"properties": {"x": {"allOf": [A, {"properties": {"b": A}}]}}, "type": "object"},
     {"x": {"a": 1, "b": {"a": 1}}}, {"x": {"b": {"x": 1}}}),
])
def test_objects_have_the_members_that_their_schema_names(schema: Any, right: Any, wrong: Any) -> None:
    """Whatever part of it does."""
    assert accepts("json_schema", json.dumps(schema), json.dumps(right))
    assert not accepts("json_schema", json.dumps(schema), json.dumps(wrong))


@pytest.mark.parametrize("schema", [
    {"type": "object"}, {}, True, {**A, "additionalProperties": True}, {**A, "additionalProperties": {"const": 1}},
    {**A, "unevaluatedProperties": True}, {"allOf": [A, {**A, "additionalProperties": True}]},
])
def test_other_members_are_there_for_the_asking(schema: Any) -> None:
    """And where no member is named at all."""
    assert accepts("json_schema", json.dumps(schema), '{"other": 1}')


def test_arguments_of_calls_are_such_objects() -> None:
    """A small model may not invent any."""
    source = ToolCalls(tools=[{"name": "f", "parameters": A}]).source()
    assert accepts("tools", source, '{"name": "f", "arguments": {"a": 1}}')
    assert not accepts("tools", source, '{"name": "f", "arguments": {"x": 1}}')


def test_parts_may_not_name_members_without_end() -> None:
    """A chain of definitions that each object refers to would be written out as often."""
    definitions: dict[str, Any] = {str(i): {"allOf": [{"$ref": f"#/$defs/{i + 1}"}, A]} for i in range(300)}
    definitions["300"] = A
    with pytest.raises(GrammarError, match=r"^\$: too many schemas and members describe the same values"):
        read_schema({"$defs": definitions, "$ref": "#/$defs/0"})
