"""Llama 3: JSON with "parameters" that nothing announces, and <|python_tag|> before built-in tools and code."""

from __future__ import annotations

from dataclasses import dataclass

from ggpy.text.tool_calls.code_calls import PYTHON_TAG, read_code
from ggpy.text.tool_calls.json_calls import JsonCalls
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList


@dataclass(frozen=True, kw_only=True)
class LlamaCalls(JsonCalls):
    """`{"name": ..., "parameters": {...}}` at the beginning, or behind the tag as `tool.call(...)` or code."""

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        if begin == PYTHON_TAG and (yield from s.peek()) != "{":
            return (yield from read_code(s, out, tools))
        return (yield from super().read_calls(begin, s, out, tools))
