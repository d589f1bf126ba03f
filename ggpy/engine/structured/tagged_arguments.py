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
OTHERS = "additionalProperties"
ANY_KEY = r"/[A-Za-z0-9_.\-]{1,64}/"


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

    `schema` is one that `read_schema` has made. Those that are not required may be left out; others may follow where it
    says so.
    """
    known = schema if isinstance(schema, dict) else {}
    properties, required, others = known.get("properties", {}), known.get("required", []), known.get(OTHERS, False)
    places = [f"{rule}_{i}" + ("" if key in required else "?") for i, key in enumerate(properties)]
    if others is not False:
        places.append(f"{rule}_other*")
    yield f"{rule}: {' '.join(places) or chr(34) * 2}"
    shared = {key: known[key] for key in DEFINITIONS if key in known}
    for i, (key, each) in enumerate(properties.items()):
        yield from _argument(f"{rule}_{i}", key, _with(shared, each), tags, tokens)
    if others is not False:
        other = {"type": "string"} if others is True else _with(shared, others)
        yield from _argument(f"{rule}_other", None, other, tags, tokens)


def _with(shared: dict[str, Any], schema: Any) -> Any:
    """`schema`, with what it may refer to."""
    return {**shared, **schema} if isinstance(schema, dict) else schema


def _argument(rule: str, key: str | None, schema: Any, tags: ArgumentTags, tokens: GrammarTokens) -> Iterator[str]:
    """Rules of one argument; `key` None: of any name."""
    from ggpy.engine.structured.tool_calls import literal, symbols

    begin = f"{symbols(tags.key_begin, tokens)} {ANY_KEY if key is None else literal(key)}"
    end, choices = symbols(tags.value_end, tokens), texts_of(schema)
    if choices is None:
        yield f"{rule}: {begin} {symbols(tags.json_begin, tokens)} {rule}_value {end}"
        yield f"{rule}_value: %json {inline_schema(schema)}"
        return
    yield f"{rule}: {begin} {symbols(tags.text_begin, tokens)} {rule}_value"
    if choices:
        yield f"{rule}_value: ({' | '.join(map(literal, choices))}) {end}"
    else:
        yield from text_rules(f"{rule}_value", tags.value_end, tokens)


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
