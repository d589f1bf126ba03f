"""What reading the schemas of tools may take."""

from dataclasses import asdict
from typing import Any

import pytest

from ggpy.engine.structured import budget
from ggpy.engine.structured.budget import WorkBudget
from ggpy.engine.structured.text_lexeme import TextReader
from ggpy.engine.structured.tool_calls import ToolCalls
from ggpy.errors import GrammarError
from ggpy.text.tool_calls import FORMATS
from tests.engine.grammars import start

SHAPE = next(each.shape for each in FORMATS if each.name == "qwen-coder")
assert SHAPE is not None
TEXT = {"type": "string"}


def source(*schemas: Any) -> str:
    """Tools whose arguments stand between tags."""
    assert SHAPE is not None
    return ToolCalls(tools=[{"name": f"f{i}", "parameters": schema} for i, schema in enumerate(schemas)],
                     **asdict(SHAPE)).source()


def members(n_members: int, n_parts: int, n_forms: int) -> dict[str, Any]:
    """An object that has no such members, say so many parts of each form."""
    return {"type": "object", "properties": {f"a{i}": False for i in range(n_members)}, "additionalProperties": True,
            "allOf": [{}] * n_parts, "anyOf": [{}] * n_forms}


@pytest.mark.parametrize("schema", [
    members(20, 50, 1), members(20, 10, 8), members(400, 1, 2),
    {"type": "object", "properties": {f"a{i}": {"$ref": "#/$defs/t"} for i in range(50)},
     "$defs": {"t": {**TEXT, "anyOf": [{"type": "integer"}] * 30 + [TEXT]}}},
    {"type": "object", "allOf": [{"anyOf": [{}] * 60}, *[{}] * 100]},
    {"type": "object", "properties": {"a": {"enum": [str(i) for i in range(20_000)]}}},
], ids=["parts", "forms", "members", "references", "copies", "values"])
def test_schemas_that_say_much_of_many_members_are_refused(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some hundred kB of them took minutes of Python."""
    monkeypatch.setattr(budget, "MAX_WORK", 1_000)
    with pytest.raises(GrammarError, match=r"^\$\.tools\[0\]\.parameters.*: too many schemas and members describe"):
        start("tools", source(schema))


def test_the_budget_is_of_all_tools_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the tool that is too much."""
    monkeypatch.setattr(budget, "MAX_WORK", 1_000)
    start("tools", source(members(20, 10, 1)))
    with pytest.raises(GrammarError, match=r"^\$\.tools\[[1-9]\]\.parameters.*: too many schemas and members describe"):
        start("tools", source(*[members(20, 10, 1)] * 10))


def test_a_text_is_read_once_however_many_forms_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a schema says does not depend on who asks."""
    monkeypatch.setattr(budget, "MAX_WORK", 3)
    schema = {**TEXT, "allOf": [{"minLength": 1}, {"maxLength": 2}]}
    reader = TextReader(schema, WorkBudget())
    assert [reader.expression(schema, "$") for _ in range(5)] == ["/(?s:.{1,})/ & /(?s:.{0,2})/"] * 5
