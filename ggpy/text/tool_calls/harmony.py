"""gpt-oss: messages with channels and recipients ("harmony")."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.json_text import read_json
from ggpy.text.tool_calls.output import Output
from ggpy.text.tool_calls.scanner import Scanner, Steps
from ggpy.text.tool_calls.tool_list import ToolList

START, CHANNEL, MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
ENDS = ("<|end|>", "<|call|>", "<|return|>")
MARKS = (START, CHANNEL, "<|constrain|>", MESSAGE, *ENDS)
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(re.escape(CHANNEL) + r"\s*(\w+)")


@dataclass(frozen=True, kw_only=True)
class Harmony(ToolFormat):
    """Messages `<|start|>assistant to=recipient<|channel|>name<|message|>body<|end|>`, the first start being in the
    prompt.

    The channel "analysis" has reasoning, every other one content; a message to `functions.name` is a call of that tool.
    """

    def read(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        if out.is_in_reasoning:
            yield from self._read_reasoning(s, out)
        while (yield from s.peek()):
            yield from self._read_message(s, out, tools)

    def read_calls(self, begin: str, s: Scanner, out: Output, tools: ToolList) -> Steps[bool]:
        yield from self._read_message(s, out, tools)
        return True

    def _read_message(self, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        spaces = yield from s.spaces()
        if not (yield from s.stands(START, CHANNEL, "to=")):    # no header, if an answer is continued
            out.content(spaces)
            yield from s.until(ENDS, out.content)
            return
        pieces: list[str] = []
        if (yield from s.until((MESSAGE, *ENDS), pieces.append)) != MESSAGE:
            out.content("".join(pieces))
            return
        header = "".join(pieces)
        recipients: list[str] = _RECIPIENT.findall(header)
        channels: list[str] = _CHANNEL.findall(header)
        name = recipients[-1].removeprefix("functions.") if recipients else ""
        if name and (recipients[-1] != name or name in tools):
            yield from self._read_call(name, s, out, tools)
        elif channels and channels[-1] == "analysis":
            out.begin_reasoning(header + MESSAGE)
            yield from self._read_reasoning(s, out)
        else:
            yield from s.until(ENDS, out.content)

    def _read_reasoning(self, s: Scanner, out: Output) -> Steps[None]:
        end = yield from s.until(ENDS, out.reasoning)
        if end is not None:
            out.end_reasoning(end)

    def _read_call(self, name: str, s: Scanner, out: Output, tools: ToolList) -> Steps[None]:
        yield from s.spaces()
        if (yield from s.peek()) == "{":
            out.begin(name)
            is_complete = yield from read_json(s, out.arguments)
            out.end(is_complete)
            if is_complete:
                yield from s.spaces()
            yield from s.until(ENDS, out.content)
            return
        key = next(iter(tools.parameters(name)), "code")
        out.begin(name)
        out.arguments(f'{{{json.dumps(key)}: "')
        end = yield from s.until(ENDS, lambda text: out.arguments(json.dumps(text, ensure_ascii=False)[1:-1]))
        out.arguments('"}')
        out.end(end is not None)
