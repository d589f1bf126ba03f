"""Parts of a schema as schemas of their own."""

from __future__ import annotations

from typing import Any

from ggpy.engine.structured.json_schema import LISTS, MAPS, SCHEMAS
from ggpy.text.json_pointer import target_of

DEFINITIONS = ("$defs", "definitions")


def standalone(schema: Any, root: Any) -> Any:
    """`schema`, a part of `root`, which `canonical` has made; its $defs are what it refers to, and nothing else."""
    names: dict[str, str] = {}
    result = _moved(schema, names)
    definitions: dict[str, Any] = {}
    while len(definitions) < len(names):        # `names` grows
        ref = list(names)[len(definitions)]
        definitions[names[ref]] = _moved(target_of(ref, root), names)
    return {**result, "$defs": definitions} if definitions else result


def _moved(schema: Any, names: dict[str, str]) -> Any:
    """`schema` with references to definitions that `names` calls so."""
    if not isinstance(schema, dict):
        return schema
    result: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword == "$ref":
            result[keyword] = f"#/$defs/{names.setdefault(value, f'd{len(names)}')}"
        elif keyword in MAPS:
            if keyword not in DEFINITIONS:
                result[keyword] = {name: _moved(each, names) for name, each in value.items()}
        elif isinstance(value, list) and keyword in (*LISTS, "items"):
            result[keyword] = [_moved(each, names) for each in value]
        else:
            result[keyword] = _moved(value, names) if keyword in SCHEMAS else value
    return result
