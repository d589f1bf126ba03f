"""Go's templates, as Ollama's models have them, run as Jinja."""

from __future__ import annotations

from typing import Any

import pytest

from ggpy.errors import TemplateError
from ggpy.text import ChatTemplate
from ggpy.text.go_to_jinja import is_go, jinja_of
from ggpy.text.tool_calls import detect

TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}, "required": ["x"]}}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
LEGACY = """{{ if .System }}<s>{{ .System }}</s>
{{ end }}{{ if .Prompt }}<u>{{ .Prompt }}</u>
{{ end }}<a>{{ .Response }}</a>
"""
MODERN = """\
{{- if or .System .Tools }}<s>
{{- if .System }}{{ .System }}{{ end }}
{{- if .Tools }}
Tools:
{{- range .Tools }}
{{ .Function }}
{{- end }}
{{- end }}</s>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 -}}
{{- if eq .Role "user" }}<u>{{ .Content }}</u>
{{ else if eq .Role "assistant" }}<a>
{{- if .Content }}{{ .Content }}
{{- else if .ToolCalls }}
{{- range .ToolCalls }}<tool_call>{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}</tool_call>
{{- end }}
{{- end }}{{ if not $last }}</a>
{{ end }}
{{- else if eq .Role "tool" }}<t>{{ .Content }}</t>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<a>{{ end }}
{{- end }}"""


def said(role: str, content: str) -> dict[str, Any]:
    return {"role": role, "content": content}


def written(template: str, messages: list[dict[str, Any]], **options: Any) -> str:
    return ChatTemplate(jinja_of(template)).render(messages, **options)


def alone(expression: str, content: str = "c", **options: Any) -> str:
    """What an action writes where `.` is the message of a user."""
    return written("{{ range .Messages }}" + expression + "{{ end }}", [said("user", content)], **options)


def test_a_template_of_exchanges_is_written_for_each() -> None:
    """It ends behind the response, which is still to come."""
    messages = [said("system", "S"), said("user", "1"), said("assistant", "2"), said("user", "3")]
    assert written(LEGACY, messages) == "<s>S</s>\n<u>1</u>\n<a>2</a>\n<u>3</u>\n<a>"
    assert written(LEGACY, [*messages, said("assistant", "be")]).endswith("<a>be")


def test_a_system_in_between_begins_an_exchange() -> None:
    """As Ollama has it."""
    messages = [said("user", "1"), said("assistant", "2"), said("system", "S"), said("user", "3")]
    assert written(LEGACY, messages) == "<u>1</u>\n<a>2</a>\n<s>S</s>\n<u>3</u>\n<a>"


def test_a_template_of_messages_is_written_once() -> None:
    """The system stands where the template wants it."""
    messages = [said("system", "S"), said("user", "1"), said("assistant", "2"), said("user", "3")]
    assert written(MODERN, messages) == "<s>S</s>\n<u>1</u>\n<a>2</a>\n<u>3</u>\n<a>"


def test_tools_and_calls_are_json() -> None:
    """Without blanks, as Go writes it; arguments are an object also where a client sent text."""
    messages = [said("user", "1"), {**said("assistant", ""), "tool_calls": [CALL]}, said("tool", "3")]
    text = written(MODERN, messages, tools=[TOOL])
    assert text.startswith('<s>\nTools:\n{"name":"f","description":"d","parameters":{"type":"object","properties":')
    assert '<a><tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call></a>\n<t>3</t>\n<a>' in text


def test_what_a_template_can_is_found_as_of_others() -> None:
    """Tools, and the format of calls."""
    template = ChatTemplate(jinja_of(MODERN))
    assert (template.capabilities.tools, template.capabilities.tool_calls) == (True, True)
    assert detect(template).tool_format.name == "hermes"
    assert not ChatTemplate(jinja_of(LEGACY)).capabilities.tools


@pytest.mark.parametrize(("expression", "text"), [
    ("{{ .Content }}", "c"), ("a {{- .Content -}} b", "acb"), ("a\n{{- /* no\nword */ -}}\nb", "ab"),
    ('{{ if eq .Role "user" "tool" }}yes{{ end }}', "yes"), ('{{ if ne .Role "user" }}yes{{ else }}no{{ end }}', "no"),
    ("{{ if and .Content (not .Thinking) }}1{{ else }}2{{ end }}", "1"),
    ("{{ with .Content }}[{{ . }}]{{ end }}", "[c]"),
    ("{{ with .Thinking }}{{ . }}{{ else }}none{{ end }}", "none"), ("{{ $x := .Content }}{{ $x }}", "c"),
    ('{{ $x := "" }}{{ range $.Messages }}{{ $x = .Role }}{{ end }}{{ $x }}', "user"), ("{{ len .Content }}", "1"),
    ('{{ printf "%s-%d-%v" .Role 3 .Content }}', "user-3-c"), ("{{ index $.Messages 0 | json }}",
                                                               '{"role":"user","content":"c"}'),
    ("{{ (index $.Messages 0).Role }}", "user"), ("{{ .Content | printf \"%s!\" }}", "c!"),
    ('{{ "{{ }} {% x %} \\" \\n" }}', '{{ }} {% x %} " \n'), ("{{ `a\\n` }}", "a\\n"), ("{# #}", "{# #}"),
    ("{{ range slice $.Messages 1 }}x{{ else }}empty{{ end }}", "empty"), ("{{ $.System }}{{ .ToolCalls }}", ""),
    ("{{ if gt (len $.Messages) 0 }}{{ break }}{{ end }}x", ""), ("{{ true }}", "true"), ("{{ 1.5 }}", "1.5"),
    ("{{ if $x := .Content }}{{ $x }}{{ end }}", "c"), ("{{ if lt 1 2 }}a{{ else if le 2 1 }}b{{ end }}", "a"),
])
def test_actions_write_what_go_does(expression: str, text: str) -> None:
    """Values, conditions, variables, loops and functions."""
    assert alone(expression) == text


def test_properties_are_gone_through_by_name() -> None:
    """With their values, or the values alone."""
    by_name = "{{ range $k, $v := .Function.Parameters.Properties }}{{ $k }}:{{ $v.Type }} {{ end }}"
    assert written("{{ .Messages | len }}{{ range .Tools }}" + by_name + "{{ end }}", [said("user", "1")],
                   tools=[TOOL]) == "1x:integer y:string "


def test_thoughts_are_switched() -> None:
    """By whether the request says so, and how."""
    template = "{{ if and .IsThinkSet .Think }}on{{ else }}off{{ end }}{{ .ThinkLevel }}{{ len .Messages }}"
    for variables, text in (({"enable_thinking": True, "reasoning_effort": "low"}, "onlow1"),
                            ({"enable_thinking": False}, "off1"), ({}, "off1")):
        assert written(template, [said("user", "1")], chat_template_kwargs=variables) == text


def test_what_messages_say_is_no_template() -> None:
    """Nor do quotes of a template get out of their text."""
    assert alone("{{ .Content }}", content='{{ "x" }}{% if %}') == '{{ "x" }}{% if %}'
    assert alone("\" ~ messages ~ \"'\\") == "\" ~ messages ~ \"'\\"


@pytest.mark.parametrize(("template", "problem"), [
    ("a\n{{ if .Prompt }}x", r"line 2: \{\{if\}\} has no"), ("{{ end }}", "closes nothing"), ("{{ .Prompt", "no }}"),
    ("{{ .Nothing }}", "is not known"), ("{{ .Messages.Foo }}", "is not known"), ("{{ $x }}", "not declared"),
    ("{{ shout .Prompt }}", "not understood"), ("{{ define \"x\" }}{{ end }}", "not understood"),
    ("{{ .Prompt ! }}", "not understood"), ("{{ (.Prompt }}", "not closed"), ("{{ .Prompt .System }}", "one word too"),
    ("{{ /* x }}", "no }}"), ("{{ . }}", "as a whole"), ("{{ $a, $b := .Prompt }}", "range alone"),
    ("{{ if .Prompt }}" * 60 + "{{ end }}" * 60, "nested"), ("{{ " + "(" * 90 + "1" + ")" * 90 + " }}", "nested"),
    ("{{ \"x }}", "no }}"), ("{{ if }}{{ end }}", "a value is missing"),
])
def test_what_is_no_template_is_refused(template: str, problem: str) -> None:
    """With the reason, and the line where it is known."""
    with pytest.raises(TemplateError, match=problem):
        ChatTemplate(jinja_of("{{ .Response }}" + template))


@pytest.mark.parametrize("template", ["{{/*}}" * 50_000, "{{" * 100_000, "{{ .Prompt }}" * 30_000, '{{ "' * 50_000,
                                      "{{ `" * 50_001, "{{ /**/" * 50_000])
def test_a_template_of_ill_will_is_refused(template: str) -> None:
    """However long it is."""
    with pytest.raises(TemplateError):
        jinja_of("{{ .Response }}" + template)


@pytest.mark.parametrize(("template", "expected"), [
    ("{{ .Prompt }}", True), ("{{- range .Messages }}{{ end }}", True), ("{{ $x }}", True), ("{{ json .Tools }}", True),
    ("{{ messages }}", False), ("{% for m in messages %}{{ m.content }}{% endfor %}", False), ("no action", False),
    ("{{ bos_token }}{{ messages[0].content }}", False),
])
def test_go_is_told_from_jinja(template: str, expected: bool) -> None:
    """What is neither is taken as it stands."""
    assert is_go(template) is expected
