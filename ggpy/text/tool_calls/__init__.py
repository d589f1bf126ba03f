"""Calls of tools and reasoning in what models write."""

from ggpy.text.tool_calls.detect import AnswerStyle, detect
from ggpy.text.tool_calls.events import (
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    ParsedAnswer,
    Reasoning,
    ToolCall,
)
from ggpy.text.tool_calls.format import CallOpening, CallShape, ToolFormat
from ggpy.text.tool_calls.known import FORMATS
from ggpy.text.tool_calls.parser import AnswerParser, parse_answer
from ggpy.text.tool_calls.tool_list import function_of, name_of

__all__ = ["FORMATS", "AnswerParser", "AnswerStyle", "CallArguments", "CallBegin", "CallEnd", "CallOpening",
           "CallShape", "Content", "Event", "ParsedAnswer", "Reasoning", "ToolCall", "ToolFormat", "detect",
           "function_of", "name_of", "parse_answer"]
