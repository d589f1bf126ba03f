"""Grammars of arguments that stand between tags, and what the readers of such calls make of what they allow."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pytest

from ggpy.engine.structured.tool_calls import ToolCalls
from ggpy.errors import GrammarError
from ggpy.text.tool_calls import FORMATS, ToolFormat, parse_answer
from ggpy.text.tool_calls.tool_list import ToolList
from tests.engine.grammars import END, accepts, allowed, encode, start

BY_NAME = {each.name: each for each in FORMATS}
MINICPM, QWEN, DSML = (BY_NAME[name] for name in ("minicpm", "qwen-coder", "deepseek-tags"))
INTEGER, TEXT = {"type": "integer"}, {"type": "string"}
CITY = {"type": "object", "properties": {"city": TEXT}, "required": ["city"]}
COUNT = {"type": "object", "properties": {"n": INTEGER}, "required": ["n"]}
THREE = {"type": "object", "properties": dict.fromkeys("abc", INTEGER)}
OSLO = {"city": "Oslo"}


class Tool:
    """A tool `f` whose calls are written in `tool_format`."""

    def __init__(self, schema: Any, tool_format: ToolFormat = MINICPM) -> None:
        assert tool_format.shape is not None
        self.format, self.shape = tool_format, tool_format.shape
        self.tools: list[Any] = [{"name": "f", "parameters": schema}]
        self.source = ToolCalls(tools=self.tools, **asdict(self.shape)).source()

    def is_text(self, key: str) -> bool:
        return ToolList(self.tools).is_text("f", key)

    def call(self, arguments: Iterable[tuple[str, Any]]) -> str:
        """A call as a model writes it: what is read as a text as it is, and all else as JSON."""
        shape, tags = self.shape, self.shape.tags
        assert tags is not None
        parts = []
        for key, value in arguments:
            is_text = isinstance(value, str) and self.is_text(key)
            text = value if is_text else json.dumps(value, ensure_ascii=False)
            begin = tags.text_begin if is_text else tags.json_begin
            parts.append(f"{tags.key_begin}{key}{begin}{text}{tags.value_end}")
        return (f"{shape.begin}{shape.name_begin}f{shape.name_end}{''.join(parts)}{shape.arguments_end}{shape.end}")

    def allows(self, arguments: Any) -> bool:
        """Whether a call with these arguments may be written; if so, it is read as one with these."""
        text = self.call(arguments.items() if isinstance(arguments, dict) else arguments)
        is_allowed = self.takes(text)
        if is_allowed and isinstance(arguments, dict):
            assert self.read(text) == arguments
        return is_allowed

    def takes(self, text: str) -> bool:
        constraint, tokens = start("tools", self.source), encode(text)
        if len(constraint.keep_valid(tokens)) < len(tokens):
            return False
        for token in tokens:
            constraint.accept(token)
        return END in allowed(constraint)[0]

    def read(self, text: str) -> Any:
        (call,) = parse_answer(text, self.format, self.tools).calls
        return json.loads(call.arguments)


@pytest.mark.parametrize("tool_format", [MINICPM, QWEN, DSML], ids=lambda each: each.name)
@pytest.mark.parametrize(("schema", "right", "wrong"), [
    ({"$ref": "#/$defs/place", "$defs": {"place": CITY}}, [OSLO], [{}, {"town": "Oslo"}]),
    ({"anyOf": [CITY, COUNT]}, [OSLO, {"n": 1}], [{}, {"n": "x"}, {"city": "Oslo", "n": 1}]),
    ({"anyOf": [{"type": "null"}, CITY]}, [OSLO], [{}]),
    ({"oneOf": [{**CITY, "properties": {"city": {"const": city}}} for city in ("Oslo", "Rom")]},
     [OSLO, {"city": "Rom"}], [{}, {"city": "Bonn"}]),
    ({"allOf": [CITY, {"properties": {"n": INTEGER}}]}, [OSLO, {"city": "Oslo", "n": 1}], [{}, {"n": 1}]),
    ({"allOf": [CITY, {"properties": {"city": {"maxLength": 3}}}]}, [{"city": "Rom"}], [OSLO]),
    ({"properties": {"n": INTEGER}, "anyOf": [{"required": ["n"]}, {"required": ["m"]}]}, [{"n": 1}], [{}]),
    ({"type": "object"}, [{}, OSLO, {"a": 1, "b": {"c": []}}], []),
    ({}, [{}, OSLO], []), (True, [{}, OSLO], []),
    ({"type": "object", "required": ["x"]}, [{"x": 1}, {"x": "a", "y": None}], [{}, {"y": 1}]),
    ({"type": "object", "required": ["x"], "additionalProperties": INTEGER}, [{"x": 1}, {"x": 1, "y": 2}],
     [{}, {"y": 1}, {"x": "a"}]),
])
def test_arguments_are_those_of_the_whole_schema(tool_format: ToolFormat, schema: Any, right: list[Any],
                                                 wrong: list[Any]) -> None:
    """Wherever it says what they are: a call without arguments came where only `properties` were looked at."""
    tool = Tool(schema, tool_format)
    assert [arguments for arguments in right if not tool.allows(arguments)] == []
    assert [arguments for arguments in wrong if tool.allows(arguments)] == []


@pytest.mark.parametrize("tool_format", [MINICPM, QWEN], ids=lambda each: each.name)
@pytest.mark.parametrize(("schema", "right", "wrong"), [
    ({"type": "string", "pattern": "^[0-9]{4}$"}, ["1234"], ["oslo", "12345", ""]),
    ({"type": "string", "pattern": "[0-9]/a|^b"}, ["x1/ay", "bx"], ["xb", "1a"]),
    ({"type": "string", "pattern": "(^a$|^b$)"}, ["a", "b"], ["ab", "c"]),
    ({"type": "string", "pattern": "[|$^)]$"}, ["a|", "a)"], ["a", "|a"]),
    ({"type": "string", "pattern": "a\\nb"}, ["xa\nb"], ["anb"]),
    ({"type": "string", "pattern": ""}, ["", "a"], []),
    ({"type": "string", "pattern": "a", "maxLength": 2}, ["ab", "a"], ["abc", "b"]),
    ({"type": "string", "minLength": 2, "maxLength": 3}, ["ab", "äöü"], ["a", "abcd", ""]),
    ({"type": "string", "format": "date"}, ["2024-02-29"], ["2024-02-30", "soon"]),
    ({"type": "string", "enum": ["a", "", "bc"], "maxLength": 1}, ["a", ""], ["bc", "b"]),
    ({"enum": ["a", ""]}, ["a", ""], ["b"]), ({"type": "string", "enum": ["a", 1]}, ["a"], ["b", "1"]),
    ({"$ref": "#/$defs/a"}, ["ab"], ["b"]), ({"allOf": [{"$ref": "#/$defs/a"}], "maxLength": 2}, ["ab"], ["abc", "b"]),
    ({"type": "string", "anyOf": [{"pattern": "^a"}, {"maxLength": 1}]}, ["abc", "b"], ["bc"]),
])
def test_texts_meet_what_is_said_of_them(tool_format: ToolFormat, schema: Any, right: list[str],
                                         wrong: list[str]) -> None:
    """As in JSON, though they stand there as they are."""
    tool = Tool({"type": "object", "properties": {"x": schema}, "required": ["x"],
                 "$defs": {"a": {"type": "string", "pattern": "^a"}}}, tool_format)
    assert [text for text in right if not tool.allows({"x": text})] == []
    assert [text for text in wrong if tool.allows({"x": text})] == []


FORMAT_TEXTS = {
    "date": ["2023-12-31", "2024-13-01", "2024-04-31", "24-01-01"],
    "time": ["23:59:60Z", "10:00:00.5+02:00", "24:00:00Z"],
    "date-time": ["2024-01-01T10:00:00Z", "2024-01-01"], "duration": ["P1Y2M3DT4H", "P2W", "PT5M", "P", "1D"],
    "email": ["a.b@c.de", "a@", "a b@c.de"], "hostname": ["a-b.c", "-a", "a..b"],
    "ipv4": ["1.2.3.255", "1.2.3.256", "1.2.3"],
    "ipv6": ["::", "1:2:3:4:5:6:7:8", "1::8", "1:2", "1:2:3:4:5:6:7:8:9", "1::2::3"],
    "uuid": ["01234567-89ab-cdef-0123-456789ABCDEF", "01234567"],
    "uri": ["https://u@a.b:80/c%20d?e#f", "mailto:a@b", "a b", "/c", "http://[::1]/"]}


@pytest.mark.parametrize("name", FORMAT_TEXTS)
def test_formats_of_texts_are_those_of_json(name: str) -> None:
    """What a JSON string may be that has the format, a text may be too, and nothing else."""
    schema = {"type": "string", "format": name}
    tool = Tool({"type": "object", "properties": {"x": schema}, "required": ["x"]})
    found = {text: tool.allows({"x": text}) for text in FORMAT_TEXTS[name]}
    assert found == {text: accepts("json_schema", json.dumps(schema), json.dumps(text)) for text in FORMAT_TEXTS[name]}
    assert set(found.values()) == {True, False}


@pytest.mark.parametrize(("schema", "message"), [
    ({"properties": {"x": {"type": "string", "pattern": "\\bfoo"}}}, r"parameters.properties.x.pattern: .*cannot"),
    ({"properties": {"x": {"type": "string", "pattern": "(?=a)b"}}}, r"parameters.properties.x.pattern: .*cannot be"),
    ({"properties": {"x": {"type": "string", "pattern": "a\\"}}}, r"parameters.properties.x.pattern: .*nothing"),
    ({"properties": {"x": {"type": "string", "pattern": "(a"}}}, r"parameters.properties.x: pattern: regex pa"),
    ({"properties": {"x": {"type": "string", "pattern": "a)/ \"b\" (x"}}}, r"parameters.properties.x: pattern: regex"),
    ({"properties": {"x": {"type": "string", "minLength": 2, "maxLength": 1}}}, r"parameters.properties.x.maxLength"),
    ({"properties": {"x": {"type": "string", "minLength": 2, "pattern": "^a$"}}},
     r"parameters.properties.x: pattern, minLength: Unsatisfiable"),
    ({"properties": {"x": {"type": "string", "const": 1}}}, r"parameters.properties.x: this argument is a"),
    ({"properties": {"a\"": TEXT}}, r"parameters.properties: \"a\\\"\" cannot stand between the tags"),
    ({"properties": {"a": TEXT}, "required": ["b"]}, r"parameters.required: there may be no member \"b\""),
    ({**THREE, "minProperties": 4}, r"parameters.minProperties: no object of 4 members"),
    ({**THREE, "required": ["a", "b"], "maxProperties": 1}, r"parameters.maxProperties: no object of 1 members"),
    ({"type": "object", "minProperties": 9999}, r"parameters.minProperties: there are more arguments"),
    ({"const": {"a": 1}}, r"parameters.const: cannot be enforced"), ({"enum": [{}]}, r"parameters.enum: cannot be"),
    ({"patternProperties": {"a": {}}}, r"parameters.patternProperties: cannot be enforced"),
    ({"type": "string"}, r"parameters: expected the type object"), (False, r"parameters: expected the type object"),
    ({"$ref": "#"}, r"parameters.\$ref.*: an object has more than .* or one that refers to itself"),
    ({"allOf": [{"anyOf": [{"maxProperties": i} for i in range(9)]}] * 2}, r"parameters.allOf: an object may have"),
    ({"oneOf": [CITY, {"type": "object", "properties": {"city": TEXT}}]}, "parameters.oneOf: oneOf constraints are"),
])
def test_what_cannot_be_enforced_is_an_error(schema: Any, message: str) -> None:
    """That names the place and the keyword."""
    with pytest.raises(GrammarError, match=rf"\$\.tools\[0\]\.{message}"):
        start("tools", Tool(schema).source)


@pytest.mark.parametrize(("schema", "right", "wrong"), [
    ({**THREE, "minProperties": 1}, ["a", "c", "ac", "abc"], [""]),
    ({**THREE, "maxProperties": 1}, ["", "a", "c"], ["ac", "abc"]),
    ({**THREE, "required": ["b"], "minProperties": 2, "maxProperties": 2, "additionalProperties": INTEGER},
     ["ab", "bc", "bz"], ["b", "abc", "bcz", "bzy"]),
    ({"type": "object", "minProperties": 1, "maxProperties": 2}, ["a", "ab"], ["", "abc"]),
])
def test_arguments_are_counted(schema: Any, right: list[str], wrong: list[str]) -> None:
    """Named ones and others together."""
    tool = Tool(schema)
    assert [keys for keys in right if not tool.allows(dict.fromkeys(keys, 1))] == []
    assert [keys for keys in wrong if tool.allows(dict.fromkeys(keys, 1))] == []


def test_a_named_argument_is_none_of_the_others() -> None:
    """It came a second time, by the schema of those, and the second value was the one that counted."""
    tool = Tool({"type": "object", "properties": {"a": INTEGER, "c": False}, "additionalProperties": TEXT})
    assert tool.allows({"a": 1, "aa": "12", "b": "x"})
    assert not tool.allows({"a": "x"})
    assert not tool.allows([("a", 1), ("a", "x")])
    assert not tool.allows({"c": "x"})


@pytest.mark.parametrize("tool_format", [MINICPM, QWEN, DSML], ids=lambda each: each.name)
def test_a_text_ends_where_it_is_read_to_its_end(tool_format: ToolFormat) -> None:
    """An end without the line break that a model writes behind it is one, too."""
    assert tool_format.shape is not None
    assert tool_format.shape.tags is not None
    end, tool = tool_format.shape.tags.value_end.strip(), Tool(CITY, tool_format)
    assert tool.allows({"city": f"a{end[:-1]} b\n"})
    assert not tool.allows([("city", f"a{end} b")])
    texts = Tool({"properties": {"x": {"type": "array", "items": TEXT}}}, tool_format)
    assert texts.allows({"x": [f"a{end}", end]})        # in strings of JSON it is no end


@pytest.mark.parametrize("pattern", ["[" * 50_000, "(" * 2_000 + "a" + ")" * 2_000, "(^" * 500, "[[:a:]" * 5_000])
def test_hostile_patterns_are_refused(pattern: str) -> None:
    """They are looked through once, and without a function that calls itself for each group."""
    with pytest.raises(GrammarError, match=r"parameters\.properties\.x"):
        start("tools", Tool({"properties": {"x": {"type": "string", "pattern": pattern}}}).source)


@pytest.mark.parametrize("schema", [
    {"properties": {f"x{i}": {"$ref": "#/$defs/d"} for i in range(500)}, "$defs": {
        "d": {"type": "object", "properties": {f"y{i}": INTEGER for i in range(500)}}}},
    {"properties": {f"x{i}": {"$ref": "#/$defs/d"} for i in range(500)}, "$defs": {
        "d": {"type": "string", "minLength": 1, "properties": {f"y{i}": INTEGER for i in range(500)}}}},
])
def test_grammars_that_grow_with_each_reference_are_refused(schema: Any) -> None:
    """Each argument brings along what it refers to."""
    with pytest.raises(GrammarError, match="the grammar of these arguments has more than 1,048,576 characters"):
        start("tools", Tool(schema).source)


def test_forms_are_left_out_whose_argument_is_read_as_a_text_and_is_none() -> None:
    """Where another form says that it is a text, it is one in all of them."""
    number = {"type": "object", "properties": {"n": INTEGER}, "additionalProperties": INTEGER}
    tool = Tool({"anyOf": [number, CITY, {**CITY, "properties": {"city": {"type": "string", "const": 1}}}]})
    assert tool.allows({"n": 1, "m": 2})
    assert tool.allows(OSLO)
    assert not tool.allows({"n": 1, "city": "1"})


def test_what_one_form_says_does_not_hide_another() -> None:
    """An argument that may be anything in one form hid what it is in the other."""
    tool = Tool({"anyOf": [{"type": "object", "properties": {"a": True}},
                           {"type": "object", "properties": {"a": {"anyOf": [TEXT, INTEGER]}, "c": TEXT}}]})
    assert tool.allows({"a": "12", "c": "x"})
    assert tool.allows({"a": {"b": []}})
    assert not tool.allows({"a": {}, "c": "x"})


def test_calls_of_a_large_schema_are_refused_in_time() -> None:
    """Each of its parts refers to all others."""
    defs = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    schema = {"$ref": "#/$defs/d0", "$defs": {**defs, "d60": CITY}}
    with pytest.raises(GrammarError, match="more than 10,000 schemas to meet"):
        start("tools", Tool(schema).source)


VALUES: tuple[Any, ...] = ("a", "12", "", 1, None, {})
KEYS = ("a", "b", "c")
LEAVES: tuple[Any, ...] = (
    TEXT, INTEGER, True, {"$ref": "#/$defs/t"}, {"enum": ["a", "b"]}, {"type": ["string", "null"]},
    {"type": "string", "minLength": 1}, {"anyOf": [TEXT, INTEGER]}, {"type": "string", "pattern": "1"})
T = {"type": "string", "maxLength": 1}


def random_object(rng: random.Random) -> dict[str, Any]:
    """An object schema of up to two members, and others."""
    named = rng.sample(KEYS, rng.randint(0, 2))
    schema: dict[str, Any] = {"type": "object", "properties": {key: rng.choice(LEAVES) for key in sorted(named)}}
    if rng.random() < 0.6:
        schema["required"] = rng.sample(named, rng.randint(0, len(named)))
    if rng.random() < 0.5:
        schema["additionalProperties"] = rng.choice((*LEAVES, False))
    if rng.random() < 0.2:
        schema["minProperties"] = rng.randint(0, len(named))
    if rng.random() < 0.2:
        schema["maxProperties"] = rng.randint(len(named), 3)
    return schema


def meets(value: Any, schema: Any) -> bool:
    """Whether `value` meets one of LEAVES, or an object with such members, closed where it does not say otherwise."""
    if isinstance(schema, bool):
        return schema
    if "$ref" in schema:
        return meets(value, T)
    if "anyOf" in schema:
        return any(meets(value, each) for each in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if {str: "string", int: "integer", type(None): "null", dict: "object"}[type(value)] not in types:
        return False
    if isinstance(value, str):
        return (schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", 99)
                and schema.get("pattern", "") in value)
    if isinstance(value, dict):
        others = schema.get("additionalProperties", False)
        return (set(schema.get("required", ())) <= value.keys()
                and schema.get("minProperties", 0) <= len(value) <= schema.get("maxProperties", 99)
                and all(meets(each, schema["properties"].get(key, others)) for key, each in value.items()))
    return True


@pytest.mark.parametrize("tool_format", [MINICPM, QWEN, DSML], ids=lambda each: each.name)
@pytest.mark.parametrize("seed", range(25))
def test_any_arguments_may_be_written_that_meet_the_schema(seed: int, tool_format: ToolFormat) -> None:
    """And no others; whatever may be written, also with a character too few or too many, is read as what meets it."""
    rng = random.Random(seed)
    objects = [random_object(rng) for _ in range(rng.choice((1, 1, 2)))]
    schema = {**(objects[0] if len(objects) == 1 else {"anyOf": objects}), "$defs": {"t": T}}
    tool = Tool(schema, tool_format)
    some = [dict(zip(keys, values, strict=True)) for n in range(4) for keys in itertools.combinations(KEYS, n)
            for values in itertools.product(VALUES, repeat=n)]
    for arguments in rng.sample(some, 25):
        if any(tool.is_text(key) and not isinstance(value, str) for key, value in arguments.items()):
            continue        # it would be read as a text
        is_right = any(meets(arguments, each) for each in objects)
        orders = [dict(each) for each in itertools.permutations(arguments.items())]
        assert any(map(tool.allows, orders)) is is_right, arguments
        text = tool.call(rng.choice(orders).items())
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice(("", "a", "1", "<", '"', "\n")) + text[at + rng.randint(0, 1):]
        if tool.takes(changed):
            assert any(meets(tool.read(changed), each) for each in objects), changed
