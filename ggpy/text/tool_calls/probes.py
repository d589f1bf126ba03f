"""What a chat template writes of answers that are known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ggpy.errors import TemplateError
from ggpy.text.chat import ChatTemplate

QUESTION = "needle question"
ANSWER = "needle answer"
THOUGHT = "needle thought"
TOOL_NAME = "needle_tool"
ARGUMENTS: dict[str, Any] = {"first_key": "first value", "second_key": 42}
TOOLS = [{"type": "function", "function": {
    "name": TOOL_NAME, "description": "A tool.", "parameters": {
        "type": "object", "required": list(ARGUMENTS),
        "properties": {"first_key": {"type": "string", "description": "A text."},
                       "second_key": {"type": "integer", "description": "A number."}}}}}]


def calling(n_calls: int) -> dict[str, Any]:
    """An answer that consists of `n_calls` equal calls."""
    return {"role": "assistant", "content": "", "tool_calls": [
        {"id": f"needle{i:03}", "type": "function", "function": {"name": TOOL_NAME, "arguments": ARGUMENTS}}
        for i in range(n_calls)]}


def written(template: ChatTemplate, answer: Mapping[str, Any], **options: Any) -> str | None:
    """What `template` writes of an assistant's `answer` to a question, with whatever it closes it with.

    That is what follows the prompt for the answer or, if the template writes another one in a history, all behind the
    question. None if it cannot write it.
    """
    question = {"role": "user", "content": QUESTION}
    try:
        whole = template.render([question, answer], add_generation_prompt=False, **options)
        prompt = template.render([question], **options)
    except TemplateError:
        return None
    if whole.startswith(prompt):
        return whole[len(prompt):]
    start = whole.rfind(QUESTION)
    return None if start < 0 else whole[start + len(QUESTION):]


def opening(template: ChatTemplate) -> str:
    """What a prompt ends with, behind the messages, to open an answer. Raises TemplateError if nothing renders."""
    question = [{"role": "user", "content": QUESTION}]
    return template.render(question).removeprefix(template.render(question, add_generation_prompt=False))


def sources(template: ChatTemplate) -> str:
    """The source of `template` and its variants."""
    return "\n".join([template.source, *(each.source for each in template.variants.values())])
