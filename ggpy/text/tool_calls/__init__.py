"""Calls of tools and reasoning in what models write."""

from ggpy.text.tool_calls.detect import AnswerStyle, detect
from ggpy.text.tool_calls.events import (
    Answer,
    CallArguments,
    CallBegin,
    CallEnd,
    Content,
    Event,
    Reasoning,
    ToolCall,
)
from ggpy.text.tool_calls.format import CallOpening, CallShape, ToolFormat
from ggpy.text.tool_calls.known import FORMATS
from ggpy.text.tool_calls.parser import AnswerParser, parse_answer
from ggpy.text.tool_calls.tool_list import function_of, name_of

__all__ = ["FORMATS", "Answer", "AnswerParser", "AnswerStyle", "CallArguments", "CallBegin", "CallEnd", "CallOpening",
           "CallShape", "Content", "Event", "Reasoning", "ToolCall", "ToolFormat", "detect", "function_of", "name_of",
           "parse_answer"]
