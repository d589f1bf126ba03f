"""Code for an interpreter, as Llama 3 and Functionary write it behind <|python_tag|>."""

from __future__ import annotations

import json

from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.python_calls import read_python_call
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

PYTHON_TAG = "<|python_tag|>"
_INTERPRETERS = ("python", "ipython", "code_interpreter")


def read_code(s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
    """Read what stands behind PYTHON_TAG: `tool.call(key=value)`, or code up to the end; whether it was either.

    Code calls the interpreter among the tools, with its first parameter; without one it is none.
    """
    word = yield from s.word()
    tool = word.removesuffix(".call")
    if tool != word and (yield from read_python_call(tool, s, out, tools)):
        return True
    interpreter = next((name for name in _INTERPRETERS if name in tools), None)
    if interpreter is None:
        return False
    key = next(iter(tools.parameters(interpreter)), "code")
    out.begin(interpreter)
    out.arguments(f'{{{json.dumps(key)}: "')
    emit_code(s.saved().removeprefix(PYTHON_TAG), out)
    s.save()
    yield from s.rest(lambda text: emit_code(text, out))
    out.arguments('"}')
    out.end()
    return True


def emit_code(text: str, out: Output) -> None:
    """Hand some code on, within a JSON string."""
    out.arguments(json.dumps(text, ensure_ascii=False)[1:-1])
