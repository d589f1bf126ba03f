"""Grammars of llguidance, written by a user: bounded, and without what would be dropped or break drafts."""

from __future__ import annotations

import json
import re

from ggpy.engine.structured.compiler import inline_schema
from ggpy.engine.structured.gbnf_lark import NO_FORCING
from ggpy.engine.structured.json_schema import canonical
from ggpy.engine.structured.patterns_together import check_patterns
from ggpy.errors import GrammarError, shown

MAX_SOURCE = 1 << 18        # characters
MAX_RULES = 4_000

# what stands for itself, and what is looked for outside of it
PARTS = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/|%json\b|[\w-]+\s*(?=:)'
                   r"|\b(?:max_tokens|temperature|stop)\s*=")


def checked_lark(source: str) -> str:
    """`source` with its JSON schemas as `canonical` leaves them.

    Raises GrammarError, naming the line, for schemas that cannot be enforced and for options that take back tokens.
    """
    if len(source) > MAX_SOURCE:
        raise GrammarError(f"the grammar has {len(source):,} characters, expected {MAX_SOURCE:,} at most")
    parts: list[str] = []
    at = n_rules = 0
    while found := PARTS.search(source, at):
        parts.append(source[at : found.end()])
        at = found.end()
        text = found.group()
        if text == "%json":
            schema, at = _schema(source, at)
            parts.append(f" {schema}")
        elif text.endswith("="):
            raise GrammarError(f"line {_line(source, found.start())}: the option {text[:-1].strip()} is not supported; "
                               "use suffix or lazy to end a text, and the request's own parameters")
        elif text[0] not in '"/#':
            n_rules += 1
    if n_rules > MAX_RULES:
        raise GrammarError(f"the grammar has {n_rules:,} rules, expected {MAX_RULES:,} at most")
    return "".join([*parts, source[at:], "\n", NO_FORCING])


def _schema(source: str, at: int) -> tuple[str, int]:
    """The schema that begins behind `at`, and where it ends."""
    start = at + len(source[at:]) - len(source[at:].lstrip())
    place = f"line {_line(source, start)}: $"
    try:
        value, end = json.JSONDecoder().raw_decode(source, start)
    except (ValueError, RecursionError) as error:
        raise GrammarError(f"{place}: not JSON: {shown(str(error))}") from error
    schema = canonical(value, place)
    check_patterns(schema, place)
    return inline_schema(schema), end


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1
