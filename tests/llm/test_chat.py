"""Messages: `LLM.chat`, `stream_chat` and `chat_tokens`."""

from collections.abc import Callable
from typing import Any

import pytest

from ggpy import LLM, SamplingParams
from ggpy.errors import (
    TemplateError,
)
from ggpy.text import ChatTemplate
from tests.llm.reference_backend import ReferenceBackend

GREEDY = SamplingParams(temperature=0, max_tokens=8)
HELLO = [{"role": "user", "content": "Hello"}]


def test_messages_are_answered_in_the_chat_template(load: Callable[..., LLM]) -> None:
    """The tiny model has none, so they are written as ChatML; BOS stands in front once."""
    llm = load(n_ctx=256)
    ids = llm.chat_tokens(HELLO)
    assert llm.detokenize(ids[1:]) == "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert ids[0] == llm.tokenizer.bos_id
    assert llm.chat(HELLO, GREEDY).tokens == llm.generate(ids, GREEDY).tokens
    assert "".join(llm.stream_chat(HELLO, GREEDY)) == llm.chat(HELLO, GREEDY).text


def text_of(llm: LLM, messages: Any, **options: Any) -> str:
    """What the model reads, without BOS."""
    return llm.detokenize(llm.chat_tokens(messages, **options)[1:])


def test_messages_are_written_with_options(load: Callable[..., LLM]) -> None:
    """Tools, documents and variables reach the template; the answer is opened unless it is not wanted."""
    llm = load(n_ctx=256, chat_template=(
        "{{ tools[0].name if tools }}|{{ documents[0].text if documents }}|{{ think }}|"
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ '>' if add_generation_prompt }}"))
    options: dict[str, Any] = {"tools": [{"name": "f"}], "documents": [{"text": "D"}],
                               "chat_template_kwargs": {"think": "T"}}
    assert text_of(llm, HELLO, **options) == "f|D|T|Hello>"
    assert text_of(llm, HELLO, add_generation_prompt=False) == "|||Hello"
    ids = llm.chat_tokens(HELLO, **options)
    assert llm.chat(HELLO, GREEDY, **options).tokens == llm.generate(ids, GREEDY).tokens
    assert "".join(llm.stream_chat(HELLO, GREEDY, **options)) == llm.generate(ids, GREEDY).text


def test_an_answer_is_continued(load: Callable[..., LLM]) -> None:
    """The last message is how it begins; the completion is what follows."""
    llm = load(n_ctx=256)
    messages = [*HELLO, {"role": "assistant", "content": "Hi, "}]
    ids = llm.chat_tokens(messages, continue_final_message=True)
    assert ids[: len(llm.chat_tokens(HELLO))] == llm.chat_tokens(HELLO)
    assert llm.detokenize(ids).endswith("<|im_start|>assistant\nHi, ")
    assert llm.chat(messages, GREEDY, continue_final_message=True).text == llm.generate(ids, GREEDY).text


def test_the_template_can_be_replaced(load: Callable[..., LLM]) -> None:
    """By source, which may name the model's special tokens, by a name, or compiled; a broken one does not load."""
    assert text_of(load(n_ctx=64, chat_template="{{ bos_token }}{{ messages[0].content }}!"), HELLO) == "Hello!"
    assert text_of(load(n_ctx=64, chat_template=ChatTemplate("x{{ bos_token }}")), HELLO) == "x"
    assert text_of(load(n_ctx=64, chat_template="zephyr"), HELLO).startswith("<|user|>\nHello")
    with pytest.raises(TemplateError, match=r"chat_template, line 2: .*endif"):
        load(chat_template="{% if a %}\n{% endfor %}")
    assert len(ReferenceBackend.opened) == 3


def test_messages_that_are_none_are_refused(load: Callable[..., LLM]) -> None:
    """By the name of the argument and the place in it."""
    llm = load(n_ctx=64)
    for messages, message in (("Hello", "messages: expected a list of mappings, found 'Hello'"),
                              ([], "messages: expected a message or more, found none"),
                              ([{"content": "Hello"}], r"messages\[0\] has no role"),
                              ([*HELLO, {"role": "user"}], r"messages\[1\].content is missing: expected a text or"),
                              ([{"role": "user", "content": 5}], r"messages\[0\].content: expected a text or .* 5"),
                              ([{"role": "user", "content": b"x"}], r"messages\[0\].content: expected text, .* bytes")):
        with pytest.raises(TemplateError, match=message):
            llm.chat(messages)      # type: ignore[arg-type]


def test_options_that_there_are_not_are_refused(load: Callable[..., LLM]) -> None:
    """In the name of the method that was called; a field of the parameters is told apart from a slip."""
    llm = load(n_ctx=64)
    options: dict[str, Any] = {"toools": []}
    for method in (llm.chat, llm.stream_chat, llm.chat_tokens):
        error = rf"^LLM\.{method.__name__}\(\) got an unexpected keyword argument 'toools'; did you mean 'tools'\?$"
        with pytest.raises(TypeError, match=error):
            method(HELLO, **options)
    with pytest.raises(TypeError, match=r"'max_tokens'; it is a field: params=SamplingParams\(max_tokens=\.\.\.\)"):
        llm.chat(HELLO, **{"max_tokens": 5})       # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"argument 'x'; there are add_generation_prompt, .*, documents, tools$"):
        llm.chat(HELLO, **{"x": 5})     # type: ignore[arg-type]


def test_tools_that_the_template_leaves_out_are_refused(load: Callable[..., LLM]) -> None:
    """ChatML has no place for them, nor for documents."""
    llm = load(n_ctx=64)
    with pytest.raises(TemplateError, match="tools: this model's template has no tools, so that the model would not"):
        llm.chat(HELLO, tools=[{"type": "function", "function": {"name": "f"}}])
    with pytest.raises(TemplateError, match="documents: this model's template has no documents, so that the model wo"):
        llm.chat(HELLO, documents=[{"text": "D"}])


def test_a_user_cannot_write_control_tokens(load: Callable[..., LLM]) -> None:
    """What a message spells is text to the model; what a prompt spells is a token."""
    llm = load(n_ctx=128, chat_template="{{ messages[0].content }}{{ eos_token }}")
    bos, eos = llm.tokenizer.bos_id, llm.tokenizer.eos_id
    assert bos is not None
    assert eos is not None
    spelled = llm.detokenize([eos])
    assert llm.chat_tokens([{"role": "user", "content": f"a{spelled}b"}]) == [
        bos, *llm.tokenize(f"a{spelled}b", add_special=False), eos]
    assert llm.tokenize(f"a{spelled}b", parse_special=True).count(eos) == 1
