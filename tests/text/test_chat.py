"""Conversations as the text that a model was trained on."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ggpy.errors import TemplateError
from ggpy.gguf import GGUFFile
from ggpy.text import ChatTemplate, Tokenizer, file_templates
from tests.text.token_data import byte_bpe

USER = {"role": "user", "content": "Hi"}
SYSTEM = {"role": "system", "content": "Be brief."}
ASSISTANT = {"role": "assistant", "content": "Hello!"}


def template_of(path: Path) -> ChatTemplate:
    metadata = GGUFFile(path).metadata
    return ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))


def test_smollm2(model_path: Callable[[str], Path]) -> None:
    """The model's own template, with its default system message."""
    template = template_of(model_path("smollm2:135m"))
    assert template.render([USER]) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert template.render([SYSTEM, USER, ASSISTANT], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2.5-coder:0.5b", "qwen2.5-coder:1.5b"])
def test_qwen(name: str, model_path: Callable[[str], Path]) -> None:
    """The model's own template, without and with tools."""
    template = template_of(model_path(name))
    assert template.render([USER]) == (
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    tool = {"type": "function", "function": {"name": "now", "description": "Gives the time (<UTC>)"}}
    call = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now", "arguments": {"in": "é"}}}]}
    text = template.render([SYSTEM, USER, call, {"role": "tool", "content": "12:00"}], tools=[tool])
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    assert (
        '<tools>\n{"type": "function", "function": {"name": "now", "description": "Gives the time (<UTC>)"}}\n</tools>'
    ) in text
    assert text.endswith(
        "<|im_start|>user\nHi<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "now", "arguments": {"in": "é"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n12:00\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.slow
def test_gemma_base_model_gets_chatml(
    model_path: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    """The file has no template; a warning says what is used instead."""
    with caplog.at_level(logging.WARNING, "ggpy"):
        template = template_of(model_path("gemma3:270m"))
    assert "tokenizer.chat_template is missing" in caplog.text
    assert template.render([USER]) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_missing_template_gets_chatml(caplog: pytest.LogCaptureFixture) -> None:
    """ChatML writes every role alike; an assistant message that only calls tools has no content."""
    metadata = byte_bpe()
    with caplog.at_level(logging.WARNING, "ggpy"):
        template = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    assert "tokenizer.chat_template is missing" in caplog.text
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}
    assert template.render([SYSTEM, call], add_generation_prompt=False) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
    )


@pytest.mark.parametrize(("metadata", "sources"), [
    ({}, {}), ({"tokenizer.chat_template": ""}, {}), ({"tokenizer.chat_template.rag": "r"}, {"rag": "r"}),
    ({"tokenizer.chat_template": "d"}, {"default": "d"}), ({"tokenizer.chat_template.default": "d"}, {"default": "d"}),
    ({"tokenizer.chat_template": "", "tokenizer.chat_template.default": "d"}, {"default": "d"}),
    ({"tokenizer.chat_template": "d", "tokenizer.chat_template.default": "e", "tokenizer.chat_templates": ["default"]},
     {"default": "d"}),
])
def test_where_a_file_has_its_templates(metadata: dict[str, Any], sources: dict[str, str]) -> None:
    """The ordinary one may have a name too."""
    assert file_templates(metadata) == sources


def test_template_that_is_no_text() -> None:
    """The key is there but holds something else."""
    metadata = byte_bpe() | {"tokenizer.chat_template": 7}
    with pytest.raises(TemplateError, match=r"tokenizer.chat_template: expected a string, found int 7"):
        ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))


def test_special_tokens_come_from_the_vocabulary() -> None:
    """Templates name them; a token that the model lacks is an empty text."""
    metadata = byte_bpe() | {"tokenizer.chat_template": "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}"}
    template = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    assert template.render([]) == "<bos>|<|im_end|>|"
    assert ChatTemplate("{{ bos_token }}", bos_token="<s>").render([]) == "<s>"


def test_blocks_leave_no_blank_lines() -> None:
    """A line with only a block vanishes, as templates expect."""
    source = (
        "{% for m in messages %}\n    {% if m.role == 'user' %}\n{{ m.content }}!\n    {% endif %}\n{% endfor %}\nend"
    )
    assert ChatTemplate(source).render([USER, SYSTEM]) == "Hi!\nend"


def test_loop_controls_and_generation_tags() -> None:
    """Both occur in templates of current models."""
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    )
    assert ChatTemplate(source).render([USER, ASSISTANT]) == "Hi"


def test_tojson_is_plain_json() -> None:
    """Neither escaped for HTML nor sorted, as Transformers renders tools."""
    tools = [{"z": "<é>", "a": [1, None, True]}]
    assert ChatTemplate("{{ tools | tojson }}").render([], tools=tools) == '[{"z": "<é>", "a": [1, null, true]}]'
    assert ChatTemplate("{{ tools[0].a | tojson(indent=1) }}").render([], tools=tools) == "[\n 1,\n null,\n true\n]"


def test_variables_reach_the_template() -> None:
    """Such as a switch for thinking; a name that nobody sets is undefined."""
    source = "{{ 'on' if enable_thinking is defined and enable_thinking else 'off' }}"
    assert ChatTemplate(source).render([], chat_template_kwargs={"enable_thinking": True}) == "on"
    assert ChatTemplate(source).render([]) == "off"


def test_dates() -> None:
    """Templates may write today's date."""
    assert ChatTemplate("{{ strftime_now('%Y')|length }} {{ strftime_now('%%') }}").render([]) == "4 %"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a\n{{ raise_exception('roles must alternate') }}", r"line 2: roles must alternate"),
        ("\n\n{{ messages[3].content.x }}", r"line 3: list object has no element 3"),
        ("{{ 1 / 0 }}", r"line 1: division by zero"),
        ("{{ messages.append(1) }}", r"line 1: .*'append'.*unsafe"),
        ("{{ ''.__class__.__mro__ }}", r"line 1: .*'__class__'.*unsafe"),
        ("{% for i in range(10**9) %}{% endfor %}", r"line 1: Range too big"),
        ("{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}", r"recursion"),
    ],
)
def test_failing_template(source: str, message: str) -> None:
    """The error has the line and the reason; templates cannot change their arguments or reach Python."""
    with pytest.raises(TemplateError, match="tokenizer.chat_template.*" + message):
        ChatTemplate(source).render([USER])


def test_template_that_does_not_compile() -> None:
    """Found when the model is loaded, not at the first request."""
    with pytest.raises(TemplateError, match=r"tokenizer.chat_template, line 2: .*endif"):
        ChatTemplate("{% if a %}\n{% endfor %}")
    with pytest.raises(TemplateError, match=r"does not compile"):
        ChatTemplate("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}")
