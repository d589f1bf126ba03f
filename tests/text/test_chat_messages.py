"""Messages reach a template in the form that it writes."""

import enum
from typing import Any

import pytest

from ggpy.errors import TemplateError
from ggpy.text import ChatTemplate, Tokenizer
from tests.text.token_data import byte_bpe

USER = {"role": "user", "content": "Hi"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]}
TEXTS = "{% for m in messages %}{{ m.role[0] + ':' + m.content + ';' }}{% endfor %}"
PARTS_ONLY = "{% for m in messages %}{{ m.role[0] }}:{% for p in m.content %}{{ p.text }},{% endfor %};{% endfor %}"
BOTH = (
    "{% for m in messages %}{{ m.content if m.content is string else m.content | map(attribute='text') | join('+') }};"
    "{% endfor %}"
)
CALLS = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ CALL }}{% endfor %}{% endfor %}"
AS_OBJECT = CALLS.replace("CALL", "c.function.arguments | tojson")
AS_TEXT = CALLS.replace("CALL", "'[' + c.function.arguments + ']'")
EITHER = CALLS.replace("CALL", "c.function.arguments if c.function.arguments is string else 'an object'")


def call(arguments: Any) -> dict[str, Any]:
    """An assistant's message that only calls a tool."""
    function = {"name": "f", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [{"type": "function", "function": function}]}


@pytest.mark.parametrize(
    ("source", "message", "text"),
    [
        (TEXTS, PARTS, "u:Hi\nthere;"),
        (TEXTS, {"role": "user", "content": ["Hi", {"text": "there"}]}, "u:Hi\nthere;"),
        (PARTS_ONLY, USER, "u:Hi,;"),
        (PARTS_ONLY, PARTS, "u:Hi,there,;"),
        (BOTH, USER, "Hi;"),
        (BOTH, PARTS, "Hi+there;"),
    ],
)
def test_texts_and_parts(source: str, message: dict[str, Any], text: str) -> None:
    """A template of texts gets the parts joined, a template of parts gets a text as one."""
    assert ChatTemplate(source).render([message]) == text


def test_parts_that_are_no_text() -> None:
    """A template of texts would leave an image out without a word."""
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
    with pytest.raises(TemplateError, match=r"messages\[1\].content\[0\]: .* takes only text, found 'image_url'"):
        ChatTemplate(TEXTS).render([USER, image])


@pytest.mark.parametrize(
    ("source", "arguments", "text"),
    [
        (AS_OBJECT, {"a": "é"}, '{"a": "é"}'),
        (AS_OBJECT, '{"a":   "é"}', '{"a": "é"}'),
        (AS_OBJECT, "", "{}"),
        (AS_TEXT, '{"a":   1}', '[{"a":   1}]'),
        (AS_TEXT, {"a": "é"}, '[{"a": "é"}]'),
        (EITHER, '{"a": 1}', '{"a": 1}'),
    ],
)
def test_arguments_of_calls(source: str, arguments: Any, text: str) -> None:
    """OpenAI's API has them as JSON text, most templates write an object."""
    assert ChatTemplate(source).render([USER, call(arguments)]) == text


def test_arguments_that_are_no_json() -> None:
    """The error names the call."""
    with pytest.raises(TemplateError, match=r"messages\[1\].tool_calls\[0\]: the arguments '\{\"a\": ' are not JSON"):
        ChatTemplate(AS_OBJECT).render([USER, call('{"a": ')])


def test_calls_without_words() -> None:
    """A template that cannot do without a content gets an empty one; one that can sees that there is none."""
    nothing = {**call({}), "content": None}
    assert ChatTemplate(TEXTS).render([USER, nothing]) == "u:Hi;a:;"
    assert ChatTemplate("{{ messages[1].content is defined }}").render([USER, nothing]) == "False"


def test_reasoning_has_several_names() -> None:
    """Templates read the first or the second, whatever the message has."""
    source = "{% for m in messages %}{{ m.reasoning_content }}|{{ m.thinking }};{% endfor %}"
    for name in ("reasoning_content", "thinking", "reasoning"):
        assert ChatTemplate(source).render([{"role": "assistant", "content": "", name: "Hm"}]) == "Hm|Hm;"


def test_messages_are_left_as_they_are() -> None:
    """What is adapted is a copy."""
    message = call('{"a": 1}')
    ChatTemplate(AS_OBJECT).render([PARTS, message])
    assert message == call('{"a": 1}')
    assert PARTS["content"] == [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]


def test_only_plain_data() -> None:
    """Objects with methods would be a way out of the sandbox."""
    class Role(str, enum.Enum):     # noqa: UP042  (the kind whose text is not its value)
        USER = "user"

    source = "{{ messages[0].role }}{{ messages[0].role.name }}"
    assert ChatTemplate(source).render([{"role": Role.USER, "content": ""}]) == "user"
    with pytest.raises(TemplateError, match=r"messages\[0\].content: expected text, .* found object"):
        ChatTemplate(TEXTS).render([{"role": "user", "content": object()}])
    with pytest.raises(TemplateError, match=r"tools\[0\].x: expected text, .* found bytes"):
        ChatTemplate(TEXTS).render([USER], tools=[{"x": b""}])


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ([{"content": "Hi"}], r"messages\[0\] has no role: expected system, user"),
        ("Hi", "messages: expected a list of mappings, found 'Hi'"),
        (None, "messages: expected a list of mappings, found None"),
        ([USER, "Hi"], r"messages\[1\]: expected a mapping with role and content, found 'Hi'"),
        ([{"role": 5, "content": "Hi"}], r"messages\[0\]\.role: expected a text such as system, .*, found 5"),
        ([USER, {"role": "user"}], r"messages\[1\]\.content is missing: expected a text or a list of parts; only"),
        ([{"role": "assistant", "content": None, "tool_calls": []}], r"messages\[0\]\.content is missing"),
        ([{"role": "user", "content": 5}], r"messages\[0\]\.content: expected a text or a list of parts, found 5$"),
        ([{"role": "user", "content": {"text": "Hi"}}], r"\.content: expected .*found \{.*\}; put it into a list"),
        ([{"role": "tool", "content": 5}], r"messages\[0\]\.content: expected a text or a list of parts, found 5"),
        ([{"role": "user", "content": [5]}], r"messages\[0\]\.content\[0\]: expected a part such as .*, found 5"),
        ([{"role": "user", "content": [{"type": "text"}]}], r"\.content\[0\]\.text: expected a text, found None"),
        ([{"role": "user", "content": "", "name": 5}], r"messages\[0\]\.name: expected a text, found 5"),
        ([{"role": "assistant", "reasoning": ["Hm"]}], r"messages\[0\]\.reasoning: expected a text, found \['Hm'\]"),
        ([{"role": "assistant", "tool_calls": 5}], r"\.tool_calls: expected a list of mappings, found 5"),
        ([{"role": "assistant", "tool_calls": ["f"]}], r"\.tool_calls\[0\]: expected a mapping, found 'f'"),
        ([{"role": "assistant", "tool_calls": [{"function": "f"}]}],
         r"\.tool_calls\[0\]\.function: expected a mapping with name and arguments, found 'f'"),
        ([{"role": "assistant", "tool_calls": [{"arguments": {}}]}],
         r"\.tool_calls\[0\]\.name: expected a text, found None"),
    ],
)
def test_what_is_no_message(messages: Any, error: str) -> None:
    """The error says which one, what it has and what is expected, whatever the template would make of it."""
    for source in (TEXTS, PARTS_ONLY):
        with pytest.raises(TemplateError, match=error):
            ChatTemplate(source).render(messages)


def test_results_of_tools_may_be_data() -> None:
    """Some templates write them as JSON."""
    source = "{% for m in messages %}{{ m.content if m.content is string else m.content | tojson }}{% endfor %}"
    assert ChatTemplate(source).render([{"role": "tool", "content": {"x": [1, 2]}}]) == '{"x": [1, 2]}'


def test_roles_are_the_templates_matter() -> None:
    """One that only this template knows."""
    assert ChatTemplate(TEXTS).render([{"role": "critic", "content": "Hi"}]) == "c:Hi;"


def test_template_without_system_messages() -> None:
    """Its own words, and what to do."""
    source = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}" + TEXTS
    with pytest.raises(TemplateError, match=r"line 1: No system role \(the template takes no system message; put"):
        ChatTemplate(source).render([{"role": "system", "content": "Be brief."}, USER])
    assert ChatTemplate(source).render([USER]) == "u:Hi;"


OPEN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.mark.parametrize(
    ("source", "content", "text"),
    [
        (OPEN, "Hel", "<user>Hi</><assistant>Hel"),
        (OPEN, "Hel  ", "<user>Hi</><assistant>Hel  "),
        (OPEN, "", "<user>Hi</><assistant>"),
        (OPEN.replace("m.content", "m.content | trim"), "Hel  ", "<user>Hi</><assistant>Hel"),
        (OPEN.replace("m.content", "m.content | trim"), "Hi</>", "<user>Hi</><assistant>Hi</>"),
    ],
)
def test_answer_to_continue(source: str, content: str, text: str) -> None:
    """The last message stays open, and no other is opened."""
    messages = [USER, {"role": "assistant", "content": content}]
    assert ChatTemplate(source).render(messages, continue_final_message=True) == text


def test_reasoning_to_continue() -> None:
    """The field is named."""
    source = "{% for m in messages %}<think>{{ m.reasoning_content }}</think>{{ m.content }}{% endfor %}"
    messages = [{"role": "assistant", "content": "4", "reasoning": "Two and"}]
    assert ChatTemplate(source).render(messages, continue_final_message="reasoning_content") == "<think>Two and"


@pytest.mark.parametrize(
    ("source", "messages", "error"),
    [
        (OPEN, [], "there is no message to continue"),
        (OPEN, [{"role": "assistant", "thinking": "Hm"}], "the last message has no text under 'content' to continue"),
        ("{{ messages[0].role }}", [USER], "the last message cannot be continued: the model's template leaves it out"),
    ],
)
def test_nothing_to_continue(source: str, messages: Any, error: str) -> None:
    """The error says why."""
    with pytest.raises(TemplateError, match=error):
        ChatTemplate(source).render(messages, continue_final_message=True)


def test_variables() -> None:
    """By name, as a mapping; what has a parameter of its own is none."""
    template = ChatTemplate("{{ a }}{{ b }}")
    assert template.render([USER], chat_template_kwargs={"a": 1, "b": 2}) == "12"
    assert template.render([USER], chat_template_kwargs=None) == ""


@pytest.mark.parametrize(("options", "error"), [
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs: 'messages' is not a variable of its own; give"),
    ({"chat_template_kwargs": {"a": {1}}}, r"chat_template_kwargs\.a: expected text, numbers, .* found set"),
    ({"chat_template_kwargs": {1: 2}}, r"chat_template_kwargs: expected a mapping of names to values, found \{1: 2\}"),
    ({"chat_template_kwargs": "a"}, "chat_template_kwargs: expected a mapping of names to values, found 'a'"),
    ({"tools": {"name": "f"}}, r"tools: expected a list of mappings, found \{'name': 'f'\}"),
    ({"tools": ["f"]}, r"tools\[0\]: expected a mapping, found 'f'"),
    ({"documents": "the text"}, "documents: expected a list of mappings, found 'the text'"),
])
def test_options_of_other_types(options: dict[str, Any], error: str) -> None:
    """By their name, before the template meets them."""
    with pytest.raises(TemplateError, match=error):
        ChatTemplate(TEXTS).render([USER], **options)


def test_options_that_there_are_not() -> None:
    """In the name of the method that was called, with the one that was meant."""
    with pytest.raises(TypeError, match=r"^ChatTemplate\.render\(\) got .* 'document'; did you mean 'documents'\?$"):
        ChatTemplate(TEXTS).render([USER], **{"document": []})      # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^ChatTemplate\.prompt\(\) got an unexpected keyword argument 'x'; there a"):
        ChatTemplate(TEXTS).prompt([USER], Tokenizer.from_metadata(byte_bpe()), **{"x": []})   # type: ignore[arg-type]


def test_variants_for_tools_and_documents() -> None:
    """A file may have several templates; the one for tools is taken if there are tools."""
    metadata = byte_bpe() | {
        "tokenizer.chat_template": "plain", "tokenizer.chat_templates": ["tool_use", "rag"],
        "tokenizer.chat_template.tool_use": "{{ bos_token }}{{ tools | length }} tools",
        "tokenizer.chat_template.rag": "{{ documents | length }} documents\n{{ 1 / 0 if documents | length > 1 }}",
    }
    template = ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
    tool, document = {"type": "function", "function": {"name": "f"}}, {"text": "x"}
    assert template.render([USER]) == "plain"
    assert template.render([USER], tools=[]) == "plain"
    assert template.render([USER], tools=[tool]) == "<bos>1 tools"
    assert template.render([USER], tools=[tool], documents=[document]) == "<bos>1 tools"
    assert template.render([USER], documents=[document]) == "1 documents\n"
    with pytest.raises(TemplateError, match=r"tokenizer.chat_template.rag, line 2: division by zero"):
        template.render([USER], documents=[document] * 2)


def test_variant_that_does_not_compile() -> None:
    """The error has its key."""
    metadata = byte_bpe() | {"tokenizer.chat_template": "", "tokenizer.chat_template.tool_use": "\n{% if %}"}
    with pytest.raises(TemplateError, match=r"tokenizer.chat_template.tool_use, line 2: "):
        ChatTemplate.from_metadata(metadata, Tokenizer.from_metadata(metadata))
