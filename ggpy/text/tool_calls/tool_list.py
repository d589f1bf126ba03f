"""The tools that a model may call, as parsers need them: their names and the types of their parameters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ggpy.text.json_pointer import target_of
from ggpy.text.tool_calls.json_text import is_json

MAX_DEPTH = 100     # of schemas that one argument has to meet


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
        self._schemas: dict[str, Any] = {}
        self._said: dict[str, _Said] = {}
        for tool in tools or ():
            function = function_of(tool)
            if isinstance(function.get("name"), str):
                self._schemas[function["name"]] = function.get("parameters", function.get("input_schema"))

    def __contains__(self, name: str) -> bool:
        return name in self._schemas

    def parameters(self, name: str) -> list[str]:
        """The names of the parameters of tool `name`, in their order."""
        return list(self._of(name).properties)

    def is_text(self, name: str, key: str | None) -> bool:
        """Whether all that the schema says of argument `key` of tool `name` is that it is a text and nothing else.

        None is the key of those that the schema does not name.
        """
        return self._of(name).is_text(key)

    def _of(self, name: str) -> _Said:
        if name not in self._said:
            self._said[name] = _Said(self._schemas.get(name))
        return self._said[name]

    def value(self, name: str, key: str, text: str) -> str:
        """Argument `key` of tool `name`, which the model wrote as `text`, as JSON."""
        if not self.is_text(name, key):
            if is_json(text):
                return text.strip()
            if text.strip() in ("True", "False", "None"):
                return {"True": "true", "False": "false", "None": "null"}[text.strip()]
        return json.dumps(text, ensure_ascii=False)


class _Said:
    """What a schema says of the members of an object, in any of its parts."""

    def __init__(self, schema: Any) -> None:
        self._schema = schema
        self.properties: dict[str, list[Any]] = {}
        self._others: list[Any] = []
        self._texts: dict[str | None, bool] = {}
        pending, seen = [schema], set[str]()
        while pending:
            part = pending.pop()
            if not isinstance(part, Mapping):
                continue
            properties = part.get("properties")
            for key, each in properties.items() if isinstance(properties, Mapping) else ():
                self.properties.setdefault(key, []).append(each)
            others = part.get("patternProperties")
            self._others += [*others.values()] if isinstance(others, Mapping) else []
            if part.get("additionalProperties", False) is not False:
                self._others.append(part["additionalProperties"])
            ref, inner = part.get("$ref"), list[Any]()
            if isinstance(ref, str) and ref not in seen:
                seen.add(ref)
                inner.append(target_of(ref, schema))
            for keyword in ("allOf", "anyOf", "oneOf"):
                inner += part[keyword] if isinstance(part.get(keyword), list) else []
            pending += inner[::-1]

    def is_text(self, key: str | None) -> bool:
        if key not in self._texts:
            schemas = self._others if key is None else self.properties.get(key, self._others)
            self._texts[key] = bool(schemas) and all(self._is_text(each, set()) for each in schemas)
        return self._texts[key]

    def _is_text(self, schema: Any, seen: set[str], depth: int = 0) -> bool:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return False
        if "type" in schema:
            return schema["type"] in ("string", ["string"])
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if values is not None:
            return isinstance(values, list) and bool(values) and all(isinstance(value, str) for value in values)
        ref, parts = schema.get("$ref"), schema.get("allOf")
        inner = [*parts] if isinstance(parts, list) else []
        if isinstance(ref, str) and ref not in seen:
            seen.add(ref)
            inner.append(target_of(ref, self._schema))
        return any(self._is_text(each, seen, depth + 1) for each in inner)
