"""Which part of a schema, or of the schemas of tools, the compiler refuses."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

from llguidance import LLTokenizer

from ggpy.engine.structured.compiler import compile_grammar, schema_grammar
from ggpy.engine.structured.json_schema import LISTS, MAPS, SCHEMAS, member
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.engine.structured.tool_calls import tool_schemas
from ggpy.errors import GrammarError

MAX_PARTS = 300
MAX_S = 1.0         # a message that takes longer names the root


def blamed_path(schema: Any, root: str, tokens: LLTokenizer) -> str:
    """The path of the innermost schema in `schema`, which cannot be compiled, that cannot be compiled by itself."""
    definitions = {key: schema[key] for key in ("$defs", "definitions") if isinstance(schema, dict) and key in schema}
    deadline = time.monotonic() + MAX_S
    for i, (path, part) in enumerate(_innermost_first(schema, root)):
        if i >= MAX_PARTS or time.monotonic() > deadline:
            break
        try:
            compile_grammar(tokens, schema_grammar({**definitions, **part}))
        except GrammarError:
            return path
    return root


def blamed_tool(source: str, tokens: GrammarTokens, error: GrammarError) -> GrammarError:
    """`error`, which the compiler raised for the grammar of the calls in `source`, with the path that it is about."""
    deadline = time.monotonic() + MAX_S
    for schema, path, grammar in tool_schemas(source, tokens):
        if time.monotonic() > deadline:
            break
        try:
            compile_grammar(tokens.index, grammar)
        except GrammarError as its:
            message = re.sub(r"^at \d+\(\d+\): (failed to compile JSON schema: )?", "", str(its).partition("\n")[0])
            return GrammarError(f"{blamed_path(schema, path, tokens.index)}: {message}")
    return error


def _innermost_first(schema: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas in `schema`, which is one itself, that refer to nothing outside of definitions."""
    if not isinstance(schema, dict):
        return
    for keyword, value in schema.items():
        at = member(path, keyword)
        if keyword in MAPS:
            for name, each in value.items():
                yield from _innermost_first(each, member(at, name))
        elif keyword in LISTS or (keyword == "items" and isinstance(value, list)):
            for i, each in enumerate(value):
                yield from _innermost_first(each, f"{at}[{i}]")
        elif keyword in SCHEMAS:
            yield from _innermost_first(value, at)
    if not _refers_elsewhere(schema):
        yield path, schema


def _refers_elsewhere(schema: Any) -> bool:
    if isinstance(schema, list):
        return any(map(_refers_elsewhere, schema))
    if not isinstance(schema, dict):
        return False
    ref = schema.get("$ref", "#/$defs/")
    return (not str(ref).startswith(("#/$defs/", "#/definitions/"))) or any(map(_refers_elsewhere, schema.values()))
