"""The tools that a model may call, as parsers need them: their names and the types of their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.text.tool_calls.json_text import loaded


def function_of(tool: Any) -> Mapping[str, Any]:
    """What a tool says of its function: inside `function`, or beside its type; nothing if it is malformed."""
    function = tool.get("function", tool) if isinstance(tool, Mapping) else None
    return function if isinstance(function, Mapping) else {}


def name_of(tool: Any) -> Any:
    """The name of a tool; None if it has none."""
    return function_of(tool).get("name")


class ToolList:
    """Tools as OpenAI's API has them. What is malformed in them counts as not said."""

    def __init__(self, tools: Sequence[Mapping[str, Any]] | None = None) -> None:
        self._parameters: dict[str, Mapping[str, Any]] = {}
        for tool in tools or ():
            function = function_of(tool)
            if isinstance(function.get("name"), str):
                schema = function.get("parameters", function.get("input_schema"))
                properties = schema.get("properties") if isinstance(schema, Mapping) else None
                self._parameters[function["name"]] = properties if isinstance(properties, Mapping) else {}

    def __contains__(self, name: str) -> bool:
        return name in self._parameters

    def parameters(self, name: str) -> list[str]:
        """The names of the parameters of tool `name`, in their order."""
        return list(self._parameters.get(name, {}))

    def is_text(self, name: str, key: str) -> bool:
        """Whether the schema says that argument `key` of tool `name` is a text and nothing else."""
        schema = self._parameters.get(name, {}).get(key)
        if not isinstance(schema, Mapping):
            return False
        if "type" in schema:
            return schema["type"] in ("string", ["string"])
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        return isinstance(values, Sequence) and bool(values) and all(isinstance(value, str) for value in values)

    def value(self, name: str, key: str, text: str) -> str:
        """Argument `key` of tool `name`, which the model wrote as `text`, as JSON."""
        if not self.is_text(name, key):
            try:
                loaded(text)
                return text.strip()
            except (ValueError, RecursionError):
                pass
            if text.strip() in ("True", "False", "None"):
                return {"True": "true", "False": "false", "None": "null"}[text.strip()]
        return json.dumps(text, ensure_ascii=False)
