"""How many patterns may hold together for one text."""

import json
from typing import Any

import pytest

from ggpy.engine.structured import budget
from ggpy.engine.structured.json_schema import canonical
from ggpy.engine.structured.patterns_together import check_patterns
from ggpy.engine.structured.tool_calls import ToolCalls
from ggpy.errors import GrammarError
from tests.engine.grammars import start

PATTERNS = [{"pattern": f"a.{{{i}}}b"} for i in range(10, 19)]       # nine
TEXT = {"type": "string"}
X = [{"properties": {"x": each}} for each in PATTERNS]


def check(schema: Any) -> None:
    check_patterns(canonical(schema), "$")


@pytest.mark.parametrize(("schema", "path"), [
    ({**TEXT, "allOf": PATTERNS}, "allOf"),
    ({**TEXT, **PATTERNS[0], "allOf": [*PATTERNS[1:8], {"format": "date"}]}, "allOf"),
    ({**TEXT, "allOf": [{"allOf": PATTERNS[:5]}, {"allOf": PATTERNS[5:]}]}, "allOf"),
    ({"$ref": "#/$defs/0", "$defs": {
        str(i): {**each, "$ref": f"#/$defs/{(i + 1) % 9}"} for i, each in enumerate(PATTERNS)}}, r"\$ref"),
    ({"type": "object", "properties": {"x": TEXT}, "allOf": X}, "properties.x"),
    ({"type": "object", **X[0], "allOf": [{"additionalProperties": each} for each in PATTERNS[1:]]},
     "additionalProperties"),
    ({"type": "object", **X[0], "allOf": [{"patternProperties": {"x": each}} for each in PATTERNS[1:]]},
     "patternProperties"),
    ({"type": "array", "allOf": [{"items": each} for each in PATTERNS]}, "items"),
    ({"type": "array", "allOf": [{"prefixItems": [True, each]} for each in PATTERNS]}, r"prefixItems\[1\]"),
    ({"type": "array", "allOf": [{"items": [True, each]} for each in PATTERNS]}, r"items\[1\]"),
    ({"type": "object", "allOf": [{"anyOf": [each, {"type": "object"}]} for each in X]}, "properties.x"),
    ({**TEXT, "allOf": [{"anyOf": [each, TEXT]} for each in PATTERNS]}, "anyOf"),
    ({"type": "object", "properties": {"y": {"type": "array", "items": {**TEXT, "allOf": PATTERNS}}}}, "y.items.allOf"),
])
def test_more_than_eight_patterns_are_refused(schema: Any, path: str) -> None:
    """Whatever parts of a schema say so: the compiler's time doubles with each."""
    with pytest.raises(GrammarError, match=rf"^\$.*{path}.*: more than 8 patterns and formats would have to hold"):
        check(schema)


@pytest.mark.parametrize("schema", [
    {**TEXT, "allOf": PATTERNS[:8]},
    {**TEXT, "allOf": [PATTERNS[0]] * 20},
    {**TEXT, "anyOf": PATTERNS * 100},
    {"type": "object", "properties": {f"x{i}": each for i, each in enumerate(PATTERNS)}},
    {"type": "object", "properties": {"y": TEXT}, "anyOf": X},
    {"type": "object", "patternProperties": {f"^{i}": each for i, each in enumerate(PATTERNS)}},
    {"type": "array", "prefixItems": PATTERNS},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {
        "next": {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, "name": PATTERNS[0]}}}},
])
def test_patterns_of_different_texts_or_choices_are_not_counted_together(schema: Any) -> None:
    """As many as there are in a schema; one that is said twice counts once."""
    check(schema)


@pytest.mark.parametrize("kind", ["json_schema", "tools", "tags", "lark"])
def test_hostile_patterns_never_reach_the_compiler(kind: str) -> None:
    """A schema of 989 bytes took the compiler's two places for ever."""
    schema = {**TEXT, "allOf": [{"pattern": f"a.{{{i}}}b"} for i in range(10, 50)]}
    tags = None if kind != "tags" else {"key_begin": "<p=", "text_begin": ">", "json_begin": ">", "value_end": "</p>"}
    calls = ToolCalls(tools=[{"name": "f", "parameters": {"type": "object", "properties": {"x": schema}}}],
                      name_end="(" if tags else None, tags=tags)
    source = {"json_schema": json.dumps(schema), "lark": f"start: %json {json.dumps(schema)}"}.get(kind, calls.source())
    with pytest.raises(GrammarError, match=r"\$.*allOf\[\d+\]\.pattern: more than 8 patterns"):
        start("tools" if kind == "tags" else kind, source)


def test_work_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choices of choices are not looked at one by one for ever."""
    monkeypatch.setattr(budget, "MAX_WORK", 1_000)
    choices: list[Any] = [{"anyOf": [{"items": {}}, {"items": {}}]} for _ in range(20)]
    with pytest.raises(GrammarError, match=r"^\$: too many schemas and members describe the same values"):
        check({"allOf": choices})
