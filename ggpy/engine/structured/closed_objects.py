"""Objects of JSON schemas have no members that the schema does not name, as in llama.cpp's grammars.

By the standard an object may have any others, so that a model may invent members for as long as it likes. A schema that
wants them says `"additionalProperties": true`, or what they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ggpy.engine.structured.budget import WorkBudget
from ggpy.engine.structured.json_schema import LISTS, MAPS, SCHEMAS, canonical
from ggpy.engine.structured.patterns_together import check_patterns
from ggpy.text.json_pointer import pointer_of, pointer_part

IN_PLACE = ("allOf", "anyOf", "oneOf")      # keywords whose schemas are about the same value
WORK_OF_MEMBER = 5          # that parts of an object name: it is written out, and compiled, for each


def read_schema(schema: Any, root: str = "$", budget: WorkBudget | None = None) -> Any:
    """`schema` as `canonical` has it, its objects closed where it does not say what others they may have.

    Where several parts of a schema, such as those of `allOf`, describe one object, it may have the members that any of
    them names. What such a part refers to stays as it is everywhere. `budget` is what others left. Raises
    GrammarError as `canonical` and `check_patterns` do.
    """
    read = canonical(schema, root)
    budget = budget or WorkBudget()
    check_patterns(read, root, budget)
    return _Closer(read, root, budget).closed()


class _Closer:
    """Closes the objects of one document."""

    def __init__(self, schema: Any, root: str, budget: WorkBudget) -> None:
        self._schema = schema
        self._root = root
        self._budget = budget
        self._places = dict(_places(schema, ""))
        self._shared = {_target(part) for each in self._places.values() if _n_parts(each) > 1
                        for part in (each, *self._parts(each, set())) if "$ref" in part}

    def closed(self) -> Any:
        return self._close(self._schema, "")

    def _close(self, schema: Any, pointer: str, *, is_part: bool = False) -> Any:
        """`schema`; `is_part` says that others describe the same object, which is closed by what holds them all."""
        if not isinstance(schema, dict):
            return schema
        is_part = is_part or pointer in self._shared
        holds_parts = is_part or _n_parts(schema) > 1
        result: dict[str, Any] = {}
        for keyword, value in schema.items():
            at = f"{pointer}/{keyword}"
            if keyword in MAPS:
                result[keyword] = {name: self._close(each, f"{at}/{pointer_part(name)}")
                                   for name, each in value.items()}
            elif isinstance(value, list) and keyword in (*LISTS, "items"):
                result[keyword] = [self._close(each, f"{at}/{i}", is_part=holds_parts and keyword in IN_PLACE)
                                   for i, each in enumerate(value)]
            else:
                result[keyword] = self._close(value, at) if keyword in SCHEMAS else value
        if not is_part:
            self._name_members(result, schema)
        return result

    def _name_members(self, result: dict[str, Any], schema: Mapping[str, Any]) -> None:
        """Let `result`, which `schema` became, have no members but those that `schema` and its parts name."""
        places = [schema, *self._parts(schema, set())] if _n_parts(schema) > 1 else [schema]
        if any("additionalProperties" in place for place in places):
            return
        if any(place.keys() & {"properties", "patternProperties"} for place in places):
            names = (name for place in places for name in place.get("properties", ()))
            result["properties"] = {**dict.fromkeys(names, True), **result.get("properties", {})}
            patterns = {pattern: True for place in places for pattern in place.get("patternProperties", ())}
            if patterns:
                result["patternProperties"] = {**patterns, **result.get("patternProperties", {})}
            result["additionalProperties"] = False

    def _parts(self, schema: Mapping[str, Any], seen: set[str]) -> Iterator[dict[str, Any]]:
        """The schemas in `schema` that are about the same value, and what they refer to."""
        inner = [each for keyword in IN_PLACE for each in schema.get(keyword, ())]
        if "$ref" in schema and (target := _target(schema)) not in seen:
            seen.add(target)
            inner.append(self._places.get(target))
        for each in inner:
            if isinstance(each, dict):
                self._budget.spend(WORK_OF_MEMBER * (1 + len(each.get("properties", ()))), self._root)
                yield each
                yield from self._parts(each, seen)


def _n_parts(schema: Mapping[str, Any]) -> int:
    """In how many places `schema` describes its value; those of an `anyOf` are one, as they are choices."""
    return (bool(schema.keys() & {"properties", "patternProperties"}) + len(schema.get("allOf", ()))
            + ("anyOf" in schema) + ("oneOf" in schema) + ("$ref" in schema))


def _target(schema: Mapping[str, Any]) -> str:
    pointer = pointer_of(schema["$ref"])
    assert pointer is not None, "canonical has read it"
    return pointer


def _places(schema: Any, pointer: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """`schema` and all schemas in it, by their JSON pointers."""
    if not isinstance(schema, dict):
        return
    yield pointer, schema
    for keyword, value in schema.items():
        at = f"{pointer}/{keyword}"
        if keyword in MAPS:
            for name, each in value.items():
                yield from _places(each, f"{at}/{pointer_part(name)}")
        elif isinstance(value, list) and keyword in (*LISTS, "items"):
            for i, each in enumerate(value):
                yield from _places(each, f"{at}/{i}")
        elif keyword in SCHEMAS:
            yield from _places(value, at)
