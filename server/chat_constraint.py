"""What the answer of a chat is held to: calls by the schemas of their tools, the rest by what the request says."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ggpy.engine.constraint import ConstraintSpec
from ggpy.errors import RequestError
from ggpy.server.errors import FieldError
from ggpy.text.tool_calls import AnswerStyle


@dataclass(frozen=True, slots=True)
class ToolName:
    """The one tool that has to be called."""

    name: str


ToolChoice = Literal["auto", "none", "required"] | ToolName


def check_choice(tools: Sequence[Mapping[str, Any]], choice: ToolChoice) -> None:
    """Raises FieldError if a tool has no name, or if there is none that has to be called."""
    names = []
    for i, tool in enumerate(tools):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        name = function.get("name") if isinstance(function, Mapping) else None
        if not isinstance(name, str) or not name:
            raise FieldError(f"tools[{i}]", "expected an object with the name of a function")
        names.append(name)
    if isinstance(choice, ToolName) and choice.name not in names:
        known = ", ".join(names) or "none"
        raise FieldError("tool_choice", f"there is no tool {choice.name!r:.80}; there are: {known:.400}")


def answer_constraint(content: ConstraintSpec | None, style: AnswerStyle, *, is_open: bool,
                      tools: Sequence[Mapping[str, Any]] = (), choice: ToolChoice = "auto",
                      is_parallel: bool = True) -> ConstraintSpec | None:
    """The constraint of a whole answer whose content is to meet `content`; thoughts are free.

    Calls that have to come are written from the start, others are held to their schemas once they have begun. Formats
    whose arguments are no JSON are left to the model.
    """
    behind_thoughts = (style.reasoning.end,) if is_open else ()
    if tools and choice != "none":
        shape, triggers = style.tool_format.shape, style.tool_format.triggers
        is_forced = choice != "auto"
        if content is not None and content.kind == "gbnf":
            raise RequestError("Cannot use custom grammar constraints with tools.")
        if shape is not None and (is_forced or (triggers and content is None)):
            allowed = [tool for tool in tools if not isinstance(choice, ToolName) or name_of(tool) == choice.name]
            source = json.dumps({
                **dataclasses.asdict(shape), "tools": allowed, "has_begun": not is_forced,
                "is_parallel": is_parallel and not isinstance(choice, ToolName)})
            return ConstraintSpec("tools", source, behind_thoughts if is_forced else triggers)
    if content is None or content.after:
        return content
    return dataclasses.replace(content, after=behind_thoughts)


def name_of(tool: Mapping[str, Any]) -> Any:
    return tool.get("function", tool)["name"]
