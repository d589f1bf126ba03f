"""Arguments of calls that stand between tags, one by one: texts as they are, all else as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from ggpy.engine.structured.compiler import inline_schema
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.errors import GrammarError

DEFINITIONS = ("$defs", "definitions")


@dataclass(frozen=True, slots=True)
class ArgumentTags:
    """An argument is `key_begin key text_begin text value_end`, or `key_begin key json_begin JSON value_end`."""

    key_begin: str
    text_begin: str
    json_begin: str
    value_end: str

    @classmethod
    def read(cls, value: Mapping[str, Any], path: str) -> ArgumentTags:
        """What a source has. Raises GrammarError."""
        names = [each.name for each in fields(cls)]
        if sorted(value) != sorted(names) or not all(isinstance(text, str) and text for text in value.values()):
            raise GrammarError(f"{path}: expected texts {', '.join(names)}")
        return cls(**value)


def tagged_rules(rule: str, schema: Any, tags: ArgumentTags, tokens: GrammarTokens) -> Iterator[str]:
    """Rules of a grammar, the first of which is `rule`: the arguments that `schema` names, in its order.

    `schema` is one that `read_schema` has made. Those that are not required may be left out.
    """
    from ggpy.engine.structured.tool_calls import literal, symbols

    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    required = schema.get("required", []) if isinstance(schema, dict) else []
    places = [f"{rule}_{i}" + ("" if key in required else "?") for i, key in enumerate(properties)]
    yield f"{rule}: {' '.join(places) or chr(34) * 2}"
    shared = {key: schema[key] for key in DEFINITIONS if key in schema} if properties else {}
    for i, (key, each) in enumerate(properties.items()):
        begin, value = f"{symbols(tags.key_begin, tokens)} {literal(key)}", f"{rule}_{i}_value"
        end = symbols(tags.value_end, tokens)
        choices = texts_of(each)
        if choices is not None:
            yield f"{rule}_{i}: {begin} {symbols(tags.text_begin, tokens)} {value}"
            if choices:
                yield f"{value}: ({' | '.join(map(literal, choices))}) {end}"
            else:
                yield from text_rules(value, tags.value_end, tokens)
        else:
            yield f"{rule}_{i}: {begin} {symbols(tags.json_begin, tokens)} {value} {end}"
            yield f"{value}: %json {inline_schema({**shared, **each} if isinstance(each, dict) else each)}"


def texts_of(schema: Any) -> list[str] | None:
    """The texts that a value may be, [] for any; None if it need not be a text."""
    if not isinstance(schema, dict):
        return None
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if values is not None:
        return list(values) if values and all(isinstance(value, str) and value for value in values) else None
    return [] if schema.get("type") in ("string", ["string"]) else None


def text_rules(rule: str, end: str, tokens: GrammarTokens) -> Iterator[str]:
    """Any text up to `end`, which it may spell as long as it does not have the control tokens of it."""
    from ggpy.engine.structured.tool_calls import symbols

    before, control, behind = symbols(end, tokens).partition("<[")
    if not control:
        yield f"{rule}[suffix={json.dumps(end)}]: /(?s:.*)/"
        return
    # one lexeme, for a text may end in what `end` begins with
    literal_before = before.strip().strip("/")
    yield f"{rule}: {rule.upper()} <[{behind}" if literal_before else f"{rule}: {rule.upper()}? <[{behind}"
    yield f"{rule.upper()}: /(?s:.*){literal_before}/" if literal_before else f"{rule.upper()}: /(?s:.+)/"
