"""JSON schemas: what is enforced, what is left out, and what is said about the rest."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggpy.engine.structured.json_schema import canonical, parse_json
from ggpy.errors import GrammarError
from tests.engine.grammars import accepts, start


def check(schema: Any, value: Any) -> bool:
    """Whether an answer may be `value`."""
    return accepts("json_schema", json.dumps(schema), json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize(("schema", "right", "wrong"), [
    ({"type": "integer", "minimum": 1, "maximum": 12}, 12, 13),
    ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, 2, 1),
    ({"type": "number", "multipleOf": 0.5}, 1.5, 1.25),
    ({"type": ["string", "null"]}, None, 1),
    ({"enum": ["a", 1, None, [True]]}, [True], "b"),
    ({"const": {"a": 1}}, {"a": 1}, {"a": 2}),
    ({"type": "string", "minLength": 2, "maxLength": 3}, "äöü", "a"),
    ({"type": "string", "pattern": "^[a-c]+$"}, "abc", "abd"),
    ({"type": "string", "format": "date"}, "2024-02-29", "2024-13-01"),
    ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, [True, False], []),
    ({"type": "array", "prefixItems": [{"const": 1}], "items": False}, [1], [1, 2]),
    ({"type": "array", "items": [{"const": 1}], "additionalItems": False}, [1], [1, 2]),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None, "x"),
    ({"oneOf": [{"type": "object", "properties": {"k": {"const": k}}, "required": ["k"]} for k in "ab"]},
     {"k": "a"}, {"k": "c"}),
    ({"allOf": [{"minimum": 3}, {"type": "integer"}]}, 3, 2),
    ({"type": "object", "patternProperties": {"^x": {"type": "integer"}}, "additionalProperties": False},
     {"x1": 1}, {"y": 1}),
    ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"next": {"$ref": "#/$defs/n"}},
                                           "additionalProperties": False}}}, {"next": {"next": {}}}, {"next": 1}),
    ({"$id": "https://example.com/a", "$ref": "https://example.com/a#/definitions/x",
      "definitions": {"x": {"type": "null"}}}, None, 1),
    ({"properties": {"a/b~c": {"type": "null"}, "d": {"$ref": "#/properties/a~1b~0c"}}, "type": "object",
      "additionalProperties": False}, {"d": None}, {"d": 1}),
    (True, {"any": ["thing", 1.5]}, float("nan")),
    ({"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c", "deprecated": True,
      "readOnly": True, "x-order": 3, "type": "integer", "uniqueItems": False, "format": "int32",
      "$schema": "http://json-schema.org/draft-07/schema#"}, 1, "a"),
])
def test_what_is_enforced(schema: Any, right: Any, wrong: Any) -> None:
    """A value that each keyword allows, and one that it does not."""
    assert check(schema, right)
    assert not check(schema, wrong)


@pytest.mark.parametrize(("schema", "message"), [
    ({"properties": {"age": {"minimum": "x"}}}, r'\$.properties.age.minimum: expected a number, found "x"'),
    ({"items": {"anyOf": [True, {"type": "strin"}]}}, r"\$.items.anyOf\[1\].type: expected one of null, boolean"),
    ({"properties": {"my key": {"not": {}}}}, r'\$.properties\["my key"\].not: cannot be enforced'),
    ({"uniqueItems": True}, r"\$.uniqueItems: cannot be enforced, and ignoring it would let through what it forbids"),
    ({"if": True}, r"\$.if: cannot be enforced"),
    ({"minimun": 3}, r"\$.minimun: is no keyword of JSON schemas; did you mean 'minimum'\?"),
    ({"strict": True}, r"\$.strict: is no keyword of JSON schemas; leave it out"),
    ({"nullable": True}, r'\$.nullable: expected false; write "type": \[..., "null"\]'),
    ({"x-guidance": {"lenient": True}}, r"\$.x-guidance: settings of the grammar compiler are not taken"),
    ({"enum": []}, r"\$.enum: expected one entry at least, found none"),
    ({"enum": "a"}, r'\$.enum: expected a list, found "a"'),
    ({"const": [1, 2**60]}, r"\$.const\[1\]: 1152921504606846976 cannot be compared exactly"),
    ({"const": "a" * 30_000}, r"\$.const: the text has 30,000 characters, expected 20,000 at most"),
    ({"required": ["a", 1]}, r'\$.required: expected a list of strings, found \["a", 1\]'),
    ({"minLength": -1}, r"\$.minLength: expected a whole number, 0 or more, found -1"),
    ({"maxItems": 1.5}, r"\$.maxItems: expected a whole number"),
    ({"maxItems": True}, r"\$.maxItems: expected a whole number"),
    ({"multipleOf": 0}, r"\$.multipleOf: expected a number above 0, found 0"),
    ({"pattern": 1}, r"\$.pattern: expected a string, found 1"),
    ({"type": "string", "format": "password"}, r'\$.format: expected one of date-time, .*, found "password"'),
    ({"properties": []}, r"\$.properties: expected an object, found \[\]"),
    ({"items": 1}, r"\$.items: expected a schema, which is an object or a boolean, found 1"),
    ([1], r"\$: expected a schema, which is an object or a boolean, found \[1\]"),
    ({"$ref": "other.json"}, r"""\$.\$ref: expected a place in this schema like '#/\$defs/name', found "other.json"""),
    ({"$ref": "#/$defs/x"}, r"\$.\$ref: there is no schema at '#/\$defs/x'"),
    ({"$ref": "#/properties", "properties": {}}, r"\$.\$ref: there is no schema at '#/properties'"),
    ({"properties": {"a": {"$id": "b"}}}, r"\$.properties.a.\$id: is supported at the root alone"),
    ({"properties": {"a": {"type": "string", "pattern": "(?=x)"}}}, r"\$.properties.a: regex parse error:"),
    ({"items": {"type": "object", "properties": {"a": {"type": "integer", "minimum": 5, "maximum": 1}},
                "required": ["a"]}, "minItems": 1, "type": "array"}, r"\$.items.properties.a: Unsatisfiable schema"),
    ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, r"\$: oneOf constraints are not supported"),
    ({"type": "object", "required": ["z"], "additionalProperties": False}, r"\$: .*required property 'z' is unsatis"),
    (False, r"\$: Unsatisfiable schema"),
])
def test_errors_name_path_and_keyword(schema: Any, message: str) -> None:
    """Nothing is dropped without a word."""
    with pytest.raises(GrammarError, match=message):
        start("json_schema", json.dumps(schema))


def nested(n: int) -> Any:
    schema: Any = {}
    for _ in range(n):
        schema = {"items": schema}
    return schema


@pytest.mark.parametrize(("source", "message"), [
    ("[" * 100_000, r"\$: the JSON is nested deeper than 100 levels"),
    ('{"const": NaN}', r"\$: not JSON: NaN is no JSON number"),
    ('{"minimum": 1e999}', r"\$.minimum: expected a number, found Infinity"),
    ('{"minimum": ' + "9" * 5000 + "}", r"\$: not JSON"),
    ('{\n"a": }', r"\$: line 2, column 6: not JSON"),
    (" " * (1 << 20) + "{}", r"\$: the JSON has 1,048,578 characters, expected 1,048,576 at most"),
    (json.dumps(nested(200)), r"nested deeper than 100 levels of JSON"),
    (json.dumps({"enum": [json.loads("[" * 110 + "]" * 110)]}), r"nested deeper than 100 levels of JSON"),
    (json.dumps({"anyOf": [{}] * 30_000}), r"\$.anyOf\[19999\]: there are more than 20,000 schemas in this one"),
    (json.dumps({"$ref": "#/$defs/0", "$defs": {str(i): {"items": {"$ref": f"#/$defs/{i + 1}"}} for i in range(5000)}
                 | {"5000": {}}}), r"\$: the schemas that are referred to have 10,001 levels together"),
    (json.dumps({"allOf": [{"anyOf": [{"properties": {f"a{i}": {"const": j}}} for j in range(9)]} for i in range(9)]}),
     r"\$: schema too large"),
    (json.dumps({"allOf": [{"$ref": "#"}, {"type": "object"}]}), r"\$: circular references"),
], ids=range(12))
def test_hostile_schemas_are_refused(source: str, message: str) -> None:
    """Depth, size, numbers and chains of references that a parser or compiler could fall over."""
    with pytest.raises(GrammarError, match=message):
        start("json_schema", source)


def test_a_chain_of_references_is_no_deep_recursion() -> None:
    """Compiled on a stack of its own; it crashed the process before."""
    definitions = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(1500)}
    assert check({"$ref": "#/$defs/d0", "$defs": {**definitions, "d1500": {"type": "null"}}}, [[[]]])


KEYWORDS = st.sampled_from([
    "type", "enum", "const", "$ref", "properties", "items", "anyOf", "allOf", "oneOf", "required", "minimum", "pattern",
    "format", "$defs", "minItems", "additionalProperties", "not", "x-a", "title", "prefixItems", "patternProperties",
    "exclusiveMinimum", "maxLength", "$id", "multipleOf"])
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3),
              st.sampled_from(["string", "integer", "object", "array", "#", "#/$defs/a", "date", "a*", "(", "^x$"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYWORDS, inner, max_size=4)), max_leaves=12)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYWORDS, VALUES, max_size=5))
def test_any_object_is_a_schema_or_an_error(schema: dict[str, Any]) -> None:
    """Nothing but GrammarError is ever raised, by the reader or the compiler."""
    with contextlib.suppress(GrammarError):
        start("json_schema", json.dumps(schema))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_is_json_or_an_error(source: str) -> None:
    """Likewise."""
    with contextlib.suppress(GrammarError):
        canonical(parse_json(source, "$"))


def test_what_is_left_out_does_not_reach_the_compiler() -> None:
    """Annotations may be long; names of properties are no keywords."""
    schema = {"description": "d" * 10, "properties": {"title": {"title": "x", "type": "null"}, "x-y": True}}
    assert canonical(schema) == {"properties": {"title": {"type": "null"}, "x-y": True}}
