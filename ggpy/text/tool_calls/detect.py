"""Which format of calls, and which tags of reasoning, a chat template is for.

The template itself is asked: of known answers, it writes what its model would. The format is the one that reads the
calls out of that again. Templates that write no calls may still describe the format to the model, or name its tags.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ggpy.text.chat import ChatTemplate
from ggpy.text.reasoning import KNOWN_TAGS, THINK, ReasoningTags
from ggpy.text.tool_calls import probes
from ggpy.text.tool_calls.derive import derived
from ggpy.text.tool_calls.events import ParsedAnswer
from ggpy.text.tool_calls.format import ToolFormat
from ggpy.text.tool_calls.known import FORMATS, GENERIC
from ggpy.text.tool_calls.parser import parse_answer

_LAST_TAG = re.compile(r"<[^<>]*>$|\[[^\[\]]*\]$")


@dataclass(frozen=True, slots=True)
class AnswerStyle:
    """How a model answers. `has_reasoning` says whether its template has to do with reasoning; if not, `reasoning` is
    what other models write."""

    tool_format: ToolFormat
    reasoning: ReasoningTags
    has_reasoning: bool


def detect(template: ChatTemplate) -> AnswerStyle:
    """The style of the model that `template` is for. It takes some renderings: ask once for each model."""
    tags = _reasoning(template)
    return AnswerStyle(_tool_format(template), tags or THINK, tags is not None)


def _tool_format(template: ChatTemplate) -> ToolFormat:
    one, two = (probes.written(template, probes.calling(n), tools=probes.TOOLS) for n in (1, 2))
    if one is not None and probes.TOOL_NAME in one:
        return _reader(FORMATS, one) or _derived(template, one, two) or GENERIC
    source = probes.sources(template)
    described = [each for each in FORMATS if each.traces and all(trace in source for trace in each.traces)]
    return max(described, key=lambda each: len(each.traces), default=GENERIC)


def _reader(formats: Iterable[ToolFormat], text: str, n_calls: int = 1) -> ToolFormat | None:
    """The first of `formats` that finds the calls of the probe in `text`; rather one that has all texts of its shape
    there, and leaves little as content."""
    found: list[tuple[tuple[bool, int], ToolFormat]] = []
    for each in formats:
        answer = parse_answer(text, each, probes.TOOLS)
        if _is_probe(answer, n_calls):
            is_strange = each.shape is not None and not all(part in text for part in each.shape.texts())
            found.append(((is_strange, len(answer.content)), each))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _derived(template: ChatTemplate, one: str, two: str | None) -> ToolFormat | None:
    """A format of the template's own; `one` call of the probe and `two` are in it."""
    plain = probes.written(template, {"role": "assistant", "content": probes.ANSWER}) or ""
    closing = plain.partition(probes.ANSWER)[2]
    for text, n_calls in ((two, 2), (one, 1)):
        if text is not None:
            found = _reader(derived(text, closing), text, n_calls)
            if found is not None and _reader([found], one) is not None:
                return found
    return None


def _is_probe(answer: ParsedAnswer, n_calls: int) -> bool:
    try:
        calls = [(call.name, json.loads(call.arguments)) for call in answer.calls]
    except ValueError:
        return False
    return calls == [(probes.TOOL_NAME, probes.ARGUMENTS)] * n_calls


def _reasoning(template: ChatTemplate) -> ReasoningTags | None:
    source = probes.sources(template)
    known = next((tags for tags in KNOWN_TAGS if tags.end in source), None)
    if known is not None:
        return known
    plain = {"role": "assistant", "content": probes.ANSWER}
    text = probes.written(template, {**plain, "reasoning_content": probes.THOUGHT}) or ""
    before, thought, rest = text.partition(probes.THOUGHT)
    end, answer, _ = rest.partition(probes.ANSWER)
    if not thought or not answer or not end.strip():
        return None
    before, header = before.strip(), (probes.written(template, plain) or "").partition(probes.ANSWER)[0].strip()
    tag = _LAST_TAG.search(before)
    begin = probes.opening(template).strip() if before in ("", header) else tag[0] if tag else before
    return ReasoningTags(begin, end.strip()) if begin else None
