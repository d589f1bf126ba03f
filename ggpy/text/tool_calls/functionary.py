"""Functionary: functions as tags (v3.1) or as recipients of messages (v3.2)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ggpy.text.tool_calls.code_calls import PYTHON_TAG, emit_code, read_code
from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_text import read_json
from ggpy.text.tool_calls.named_calls import NamedCalls
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

RECIPIENT = ">>>"


@dataclass(frozen=True, kw_only=True)
class FunctionTags(NamedCalls):
    """v3.1: `<function=name>{...}</function>`, or code behind <|python_tag|>."""

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        if begin == PYTHON_TAG:
            return (yield from read_code(s, out, tools))
        return (yield from super().read_calls(begin, s, out, tools))


@dataclass(frozen=True, kw_only=True)
class Recipients(ToolFormat):
    """v3.2: messages `>>>recipient\\nbody`, the first ">>>" being in the prompt.

    The recipient "all" is the user; the body for another one is the JSON of its arguments, or code.
    """

    def read(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        s.save()
        yield from s.take(RECIPIENT)
        while True:
            is_message = yield from self.read_calls(RECIPIENT, s, out, tools)
            unread = s.saved()
            if out.is_in_call:
                out.end(is_complete=False)
            elif not is_message:
                out.content(unread)
            begin = yield from s.until((RECIPIENT,), out.content)
            if begin is None:
                return
            s.save(len(begin))

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        name = yield from s.word()
        if not name or not (yield from s.take("\n")):
            return False
        if name == "all":
            return True
        c = yield from s.peek()
        if c == "{":
            out.begin(name)
            if not (yield from read_json(s, out.arguments)):
                return False
            out.end()
            return True
        if name not in tools and name != "python":
            return False
        key = next(iter(tools.parameters(name)), "code")
        out.begin(name)
        out.arguments(f'{{{json.dumps(key)}: "')
        yield from s.before(RECIPIENT, lambda text: emit_code(text, out))
        out.arguments('"}')
        out.end()
        return True
