"""The format of a chat template's calls, found by what it writes."""

import json
from typing import Any

import pytest

from ggpy.text.chat import CHATML, ChatTemplate
from ggpy.text.reasoning import THINK, ReasoningTags
from ggpy.text.tool_calls import detect, parse_answer

TOOLS: list[dict[str, Any]] = [{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}}]


def template(call: str, *, between: str = "", before: str = "", behind: str = "", reasoning: str = "",
             opening: str = "") -> ChatTemplate:
    """ChatML whose answers have `call` for each call, `name` and `arguments` being its variables."""
    return ChatTemplate(
        "{%- for m in messages -%}<|im_start|>{{ m.role }}\n"
        + reasoning + "{{ m.content }}"
        "{%- if m.tool_calls -%}" + before +
        "{%- for c in m.tool_calls -%}{%- set name = c.function.name -%}{%- set arguments = c.function.arguments -%}"
        + call + "{%- if not loop.last -%}{{ " + json.dumps(between) + " }}{%- endif -%}{%- endfor -%}" + behind +
        "{%- endif -%}{{ '<|im_end|>\n' }}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{ '<|im_start|>assistant\n' }}" + opening + "{%- endif -%}")


JSON_CALL = '{"name": "{{ name }}", "arguments": {{ arguments | tojson }}}'


@pytest.mark.parametrize(("expected", "style"), [
    ("hermes", template("<tool_call>\n" + JSON_CALL + "\n</tool_call>", between="\n")),
    ("mistral-list", template(JSON_CALL, before="[TOOL_CALLS][", between=", ", behind="]")),
    ("mistral", template("[TOOL_CALLS]{{ name }}[ARGS]{{ arguments | tojson }}")),
    ("llama", template('{"name": "{{ name }}", "parameters": {{ arguments | tojson }}}')),
    ("functionary-tags", template("<function={{ name }}>{{ arguments | tojson }}</function>")),
    ("glm", template("<tool_call>{{ name }}\n{%- for k, v in arguments.items() -%}<arg_key>{{ k }}</arg_key>"
                     "<arg_value>{{ v }}</arg_value>{%- endfor -%}</tool_call>")),
    ("qwen-coder", template("<tool_call>\n<function={{ name }}>\n{%- for k, v in arguments.items() -%}\n<parameter="
                            "{{ k }}>\n{{ v }}\n</parameter>\n{%- endfor -%}\n</function>\n</tool_call>")),
    ("generic", ChatTemplate(CHATML)),
    ("granite", ChatTemplate("{# a model that is told: answer <|tool_call|> and a list #}" + CHATML)),
])
def test_a_known_format_is_found_by_what_the_template_writes(expected: str, style: ChatTemplate) -> None:
    """Formats that share tags differ in what stands between; a template that writes no calls may name the tag."""
    assert detect(style).tool_format.name == expected


@pytest.mark.parametrize(("style", "text"), [
    (template("<<call>>" + JSON_CALL + "<</call>>"),
     'Hm<<call>>{"name": "f", "arguments": {"a": "x", "b": 1}}<</call>>'),
    (template(JSON_CALL, before="«calls»[", between=", ", behind="]«end»"),
     'Hm «calls»[{"name": "f", "arguments": {"a": "x", "b": 1}}]«end»'),
    (template("<run>{{ name }}<with>{{ arguments | tojson }}<done>", before="<runs>", behind="</runs>"),
     'Hm<runs><run>f<with>{"a": "x", "b": 1}<done></runs>'),
    (template("<do:{{ name }}>{%- for k, v in arguments.items() -%}<p {{ k }}>{{ v }}</p>{%- endfor -%}</do>",
              between="\n"), "Hm\n<do:f><p a>x</p><p b>1</p></do>"),
])
def test_a_format_that_nobody_knows_is_read_by_its_own_tags(style: ChatTemplate, text: str) -> None:
    """Tags are whatever the template writes around the parts of a call that is known."""
    tool_format = detect(style).tool_format
    assert tool_format.name == "derived"
    answer = parse_answer(text, tool_format, TOOLS)
    assert answer.content == "Hm"
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == [("f", {"a": "x", "b": 1})]


@pytest.mark.parametrize(("style", "tags"), [
    (ChatTemplate(CHATML), None),
    (template("", reasoning="{%- if m.reasoning_content -%}<think>{{ m.reasoning_content }}</think>{%- endif -%}"),
     THINK),
    (template("", reasoning="{%- if m.reasoning_content -%}<hm>{{ m.reasoning_content }}<ok>{%- endif -%}"),
     ReasoningTags("<hm>", "<ok>")),
    (template("", reasoning="{%- if m.reasoning_content -%}{{ m.reasoning_content }}<ok>{%- endif -%}",
              opening="I wonder:"), ReasoningTags("<|im_start|>assistant\nI wonder:", "<ok>")),
])
def test_tags_of_reasoning_are_found(style: ChatTemplate, tags: ReasoningTags | None) -> None:
    """Known tags stand in the template; others are what it writes around a thought, or at the end of a prompt."""
    found = detect(style)
    assert found.has_reasoning == (tags is not None)
    assert found.reasoning == (tags or THINK)


def test_a_prompt_says_whether_it_opens_reasoning() -> None:
    """Then an answer begins with them."""
    style = template("", reasoning="{%- if m.reasoning_content -%}{{ m.reasoning_content }}<ok>{%- endif -%}",
                     opening="I wonder:")
    assert detect(style).reasoning.is_open(style.render([{"role": "user", "content": "Hi"}]))
    assert not THINK.is_open("<think></think>")
