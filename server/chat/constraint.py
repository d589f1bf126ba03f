"""What the answer of a chat is held to: calls by the schemas of their tools, the rest by what the request says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ggpy.engine.constraint import ConstraintSpec
from ggpy.engine.structured.closed_objects import read_schema
from ggpy.errors import RequestError
from ggpy.server.errors import FieldError
from ggpy.text.tool_calls import AnswerStyle, ToolFormat, function_of, name_of


@dataclass(frozen=True, slots=True)
class ToolName:
    """The one tool that has to be called."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | ToolName


def check_choice(tools: Sequence[Mapping[str, Any]], choice: ToolChoice) -> None:
    """Raises FieldError if a tool has no name, or if there is none that has to be called."""
    names = []
    for i, tool in enumerate(tools):
        name = name_of(tool)
        if not isinstance(name, str) or not name:
            raise FieldError(f"tools[{i}]", "expected an object with the name of a function")
        names.append(name)
    if isinstance(choice, ToolName) and choice.name not in names:
        known = ", ".join(names) or "none"
        raise FieldError("tool_choice", f"there is no tool {choice.name!r:.80}; there are: {known:.400}")


def check_left_out(tools: Sequence[Mapping[str, Any]], choice: ToolChoice, model: str) -> None:
    """What is wrong with tools that the template of `model` does not write.

    Raises RequestError if one of them has to be called, and GrammarError for a schema, as other models would.
    """
    if choice not in ("auto", "none"):
        raise RequestError(f'"{model}" does not support tools: its chat template does not write them, so none can be '
                           'called; leave tool_choice at "auto", or take another model or --chat-template')
    for i, tool in enumerate(tools):
        parameters = function_of(tool).get("parameters")
        if parameters is not None:
            read_schema(parameters, f"tools[{i}].parameters")


def answer_constraint(content: ConstraintSpec | None, style: AnswerStyle, *, is_open: bool, is_off: bool = False,
                      tools: Sequence[Mapping[str, Any]] = (), choice: ToolChoice = "auto",
                      is_parallel: bool = True) -> ConstraintSpec | None:
    """The constraint of a whole answer whose content is to meet `content`; reasoning is free.

    Calls that have to come are written from the start, others are held to their schemas once they have begun. Formats
    without triggers leave others to the model, and those that have an `opening` for want of a shape leave it the
    arguments of all calls, but not the name of one that has to come. `is_open` says that the prompt has begun
    reasoning, `is_off` that there is to be none. Raises RequestError for tools beside a grammar.
    """
    tool_format, tags = style.tool_format, style.reasoning
    reasoning = ("" if is_open else tags.begin, tags.end) if is_open or (style.has_reasoning and not is_off) else None
    if tools and choice != "none":
        if reasoning is not None and tool_format.call_reasoning is not None:
            begin, end = tool_format.call_reasoning
            reasoning = ("" if is_open else begin, end)
        if content is not None and content.kind == "gbnf":
            raise RequestError("Cannot use custom grammar constraints with tools.")
        is_forced, shape = choice != "auto", tool_format.shape
        if shape is not None and not is_forced and content is None:
            source = calls_source(tools, choice, is_parallel=is_parallel, has_begun=True, **dataclasses.asdict(shape))
            triggers = tool_format.triggers
            return ConstraintSpec("tools", source, after=triggers, reasoning=reasoning) if triggers else None
        if shape is not None:
            schema = None if is_forced or content is None else schema_of(content)
            content = ConstraintSpec("tools", calls_source(tools, choice, is_parallel=is_parallel, content=schema,
                                                           **dataclasses.asdict(shape)))
        elif is_forced:
            return opened_call(tool_format, tools, choice, reasoning)
    if content is None:
        return None
    if tool_format.content_begin:
        return dataclasses.replace(content, after=(tool_format.content_begin,))
    return dataclasses.replace(content, reasoning=reasoning)


def calls_source(tools: Sequence[Mapping[str, Any]], choice: ToolChoice, *, is_parallel: bool, **options: Any) -> str:
    """The source of a constraint of kind "tools": calls of those that `choice` lets be called."""
    allowed = [tool for tool in tools if not isinstance(choice, ToolName) or name_of(tool) == choice.name]
    return json.dumps({**options, "tools": allowed, "is_parallel": is_parallel and not isinstance(choice, ToolName)})


def opened_call(tool_format: ToolFormat, tools: Sequence[Mapping[str, Any]], choice: ToolChoice,
                reasoning: tuple[str, str] | None) -> ConstraintSpec | None:
    """That a call has to come whose arguments are the model's own affair: it begins with the name of a tool."""
    opening = tool_format.opening
    if opening is None:
        return None
    source = calls_source(tools, choice, is_parallel=False, begin=opening.before, name_end=opening.behind,
                          is_free=not opening.has_json, marks=tool_format.marks)
    return ConstraintSpec("tools", source, reasoning=reasoning)


def schema_of(content: ConstraintSpec) -> Any:
    """The schema of JSON."""
    return json.loads(content.source) if content.kind == "json_schema" else {"type": "object"}
