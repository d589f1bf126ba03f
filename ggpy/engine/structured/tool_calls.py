"""Calls of tools as a model writes them: a name and arguments in JSON, between texts of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ggpy.engine.structured.budget import WorkBudget
from ggpy.engine.structured.closed_objects import read_schema
from ggpy.engine.structured.compiler import WHITESPACE, inline_schema, schema_grammar
from ggpy.engine.structured.json_schema import parse_json, shown_json
from ggpy.engine.structured.symbols import literal, symbols
from ggpy.engine.structured.tagged_arguments import TaggedArguments, read_tags
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.errors import GrammarError
from ggpy.text.tool_calls.tool_list import ToolList

MAX_TOOLS = 512
# characters of the rules of arguments between tags, of all tools: as many as eight of the largest tools have, for they
# are one text to the compiler
MAX_RULES_OF_ALL = 8 << 20
NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCalls:
    """The source of a constraint of kind "tools".

    `tools` are `{"name": ..., "parameters": schema}`, or that as "function" of an object, as in the OpenAI API. A call
    is `begin {"name": ..., "arguments": ...} end`. With `between`, several calls are one such text with that between
    them; without, each has its own begin and end, with or without a line break before it. Whitespace may stand between
    these texts and a call. With `name_end`, a call is no object but `name_begin name name_end {...} arguments_end`, and
    `is_numbered` puts ":0" and the like behind the name. With `id_end`, a new id, ten letters or digits, and that stand
    in front of the name. With `tags`, arguments stand one by one between ArgumentTags. With `is_free`, anything
    follows the `name_end` of the first call, the control tokens in `marks` too. With `content`, a schema, JSON that
    meets it may take the place of all calls.
    """

    tools: Sequence[Mapping[str, Any]]
    begin: str = ""
    end: str = ""
    between: str | None = None
    is_parallel: bool = False       # whether there may be more than one call
    has_begun: bool = False         # whether `begin` is already there: it may be what the constraint starts behind
    name_key: str = "name"
    arguments_key: str = "arguments"
    name_begin: str = ""
    name_end: str | None = None
    arguments_end: str = ""
    is_numbered: bool = False
    id_end: str = ""
    tags: Mapping[str, str] | None = None
    is_free: bool = False
    marks: Sequence[str] = ()
    content: Mapping[str, Any] | bool | None = None

    def source(self) -> str:
        """What a ConstraintSpec takes. Equal calls have equal sources."""
        return json.dumps(asdict(self))


def tool_grammar(source: str, tokens: GrammarTokens) -> str:
    """The grammar of the calls in `source`. Raises GrammarError, naming the place, if they are no ToolCalls."""
    calls = _read(parse_json(source, "$"))
    begin, end = symbols(calls.begin, tokens), symbols(calls.end, tokens)
    first_begin = '""' if calls.has_begun else begin
    more = ""
    if calls.is_parallel:
        more = (f' (/\\n?/ {begin} body {end})*' if calls.between is None
                else f" ({symbols(calls.between, tokens)} body)*")
    first = f"{first_begin} body {end}{more}" if calls.between is None else f"{first_begin} body{more} {end}"
    content = "" if calls.content is None else " | content"
    lines = [f"start: {first}{content}", f"WS: /{WHITESPACE}/", "NUMBER: /:[0-9]{1,3}/", "ID: /[a-z0-9]{10}/",
             "TEXT: /(?s:.+)/"]
    lines += _tool_rules(calls, tokens)
    before = " WS?" if calls.begin and calls.name_end is None else ""
    behind = " WS?" if calls.end and calls.name_end is None else ""
    lines.append(f"body:{before} ({' | '.join(f'call{i}' for i in range(len(calls.tools)))}){behind}")
    if content:
        lines.append(f"content: %json {inline_schema(read_schema(calls.content, '$.content'))}")
    return "\n".join([*lines, ""])


def tool_schemas(source: str, tokens: GrammarTokens) -> Iterator[tuple[Any, str, str]]:
    """The schema of each tool in `source`, its path, and the grammar of calls of that tool alone."""
    calls = _read(parse_json(source, "$"))
    for i, tool in enumerate(calls.tools):
        _, schema, path = _tool(tool, f"$.tools[{i}]", WorkBudget())
        yield schema, path, tool_grammar(replace(calls, tools=[tool], content=None).source(), tokens)
    if calls.content is not None:
        schema = read_schema(calls.content, "$.content")
        yield schema, "$.content", schema_grammar(schema)


def _tool_rules(calls: ToolCalls, tokens: GrammarTokens) -> list[str]:
    """The rules call0, call1 and so on, of each tool, and what they need."""
    lines: list[str] = []
    names: list[str] = []
    n_characters = 0
    budget = WorkBudget()       # of all tools together
    tags = None if calls.tags is None else read_tags(calls.tags, "$.tags")
    for i, tool in enumerate(calls.tools):
        name, schema, path = _tool(tool, f"$.tools[{i}]", budget)
        if name in names:
            raise GrammarError(f"$.tools[{i}].name: there is a tool {shown_json(name)} before it")
        names.append(name)
        lines.append(f"call{i}: {_call(calls, name, f'arguments{i}', tokens)}")
        if tags is None:
            lines.append(f"arguments{i}: " + (_anything(calls, tokens) if calls.is_free
                                              else f"%json {inline_schema(schema)}"))
            continue
        rules = TaggedArguments(ToolList([tool]), name, schema, path, tags, tokens, budget).rules(f"arguments{i}")
        n_characters += sum(map(len, rules))
        if n_characters > MAX_RULES_OF_ALL:
            raise GrammarError(f"$.tools: the grammar of their arguments has more than {MAX_RULES_OF_ALL:,} characters")
        lines += rules
    return lines


def _call(calls: ToolCalls, name: str, arguments: str, tokens: GrammarTokens) -> str:
    """The rule of a call of the tool `name`; `arguments` is that of its arguments."""
    if calls.name_end is not None:
        number = "NUMBER" if calls.is_numbered else ""
        call_id = f"ID {symbols(calls.id_end, tokens)}" if calls.id_end else ""
        return " ".join((symbols(calls.name_begin, tokens), call_id, literal(name), number,
                         symbols(calls.name_end, tokens), arguments, symbols(calls.arguments_end, tokens)))
    parts = ["{", json.dumps(calls.name_key), ":", json.dumps(name), ",", json.dumps(calls.arguments_key), ":"]
    return f"{' WS? '.join(map(literal, parts))} WS? {arguments} WS? {literal('}')}"


def _anything(calls: ToolCalls, tokens: GrammarTokens) -> str:
    """Any text, with control tokens of the marks in it."""
    found = {token for mark in calls.marks for token in tokens.encode(mark, parse_special=True)} & tokens.special
    marks = " | ".join(f"<[{token}]>" for token in sorted(found - set(tokens.tokenizer.eog_ids)))
    return "TEXT?" + (f" (({marks}) TEXT?)*" if marks else "")


def _read(value: Any) -> ToolCalls:
    types = {"tools": list, "is_parallel": bool, "has_begun": bool, "is_numbered": bool, "between": (str, type(None)),
             "name_end": (str, type(None)), "is_free": bool, "marks": list, "content": (dict, bool, type(None)),
             "tags": (dict, type(None))}
    if not isinstance(value, dict) or not isinstance(value.get("tools"), list) or not value["tools"]:
        raise GrammarError(f"$.tools: expected a list of tools, found {shown_json(value)}")
    if len(value["tools"]) > MAX_TOOLS:
        raise GrammarError(f"$.tools: there are {len(value['tools']):,} tools, expected {MAX_TOOLS} at most")
    known = {each.name for each in fields(ToolCalls)}
    for key, each in value.items():
        if key not in known:
            raise GrammarError(f"$.{key}: expected one of {', '.join(sorted(known))}")
        if not isinstance(each, types.get(key, str)):       # type: ignore[arg-type]
            raise GrammarError(f"$.{key}: {shown_json(each)} has the wrong type")
    return ToolCalls(**value)


def _tool(tool: Any, path: str, budget: WorkBudget) -> tuple[str, Any, str]:
    """Name and schema of a tool, and the schema's path."""
    if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
        tool, path = tool["function"], f"{path}.function"
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        raise GrammarError(f"{path}.name: expected the name of a tool, found {shown_json(tool)}")
    parameters, path = tool.get("parameters"), f"{path}.parameters"
    return tool["name"], read_schema(NO_ARGUMENTS if parameters is None else parameters, path, budget), path
