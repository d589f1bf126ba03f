"""A hostile template can neither hang the process nor fill its memory."""

from typing import Any

import pytest

from ggpy.errors import TemplateError
from ggpy.text import ChatTemplate, chat_limits

TEXT, ITEMS, STEPS = "text of more than", "list of more than", "takes more than"
GROW = "{% set ns = namespace(v='x') %}{% for i in range(64) %}{% set ns.v = VALUE %}{% endfor %}{{ ns.v }}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ 'x' * 10**9 }}", TEXT),
        ("{{ 10**9 * 'x' }}", TEXT),
        ("{{ [1] * 10**9 }}", ITEMS),
        ("{{ 9 ** 99999 }}", "integer of more than"),
        ("{% set ns = namespace(v=9) %}{% for i in range(64) %}{% set ns.v = ns.v * ns.v %}{% endfor %}", "integer of"),
        ("{{ range(10**9) }}", "Range too big"),
        (GROW.replace("VALUE", "ns.v + ns.v"), TEXT),
        (GROW.replace("VALUE", "ns.v ~ ns.v"), TEXT),
        (GROW.replace("VALUE", "ns.v.replace('x', 'xxxx')"), TEXT),
        (GROW.replace("VALUE", "ns.v | replace('x', 'xxxx')"), TEXT),
        (GROW.replace("VALUE", "'%s%s' % (ns.v, ns.v)"), TEXT),
        (GROW.replace("VALUE", "'%s%s' | format(ns.v, ns.v)"), TEXT),
        (GROW.replace("VALUE", "'{0}{0}'.format(ns.v)"), TEXT),
        (GROW.replace("VALUE", "ns.v.join([ns.v, ns.v, ns.v])"), TEXT),
        (GROW.replace("VALUE", "[ns.v, ns.v] | join"), TEXT),
        (GROW.replace("VALUE", "[ns.v, ns.v]"), TEXT),
        (GROW.replace("VALUE", "(ns.v, ns.v)"), TEXT),
        (GROW.replace("VALUE", "{'a': ns.v, 'b': ns.v}"), TEXT),
        (GROW.replace("VALUE", "dict(a=ns.v, b=ns.v)"), TEXT),
        (GROW.replace("VALUE", "dict.fromkeys('ab', ns.v)"), TEXT),
        (GROW.replace("v='x'", "v=[1]").replace("VALUE", "(ns.v + ns.v) | batch(2) | list"), TEXT),
        (GROW.replace("v='x'", "v=[[1]]").replace("VALUE", "(ns.v + ns.v) | groupby(0)"), TEXT),
        ("{% set ns = namespace(v=1) %}{% macro m() %}{% set ns.v = varargs %}{% endmacro %}"
         "{% for i in range(64) %}{% set t = m(ns.v, ns.v) %}{% endfor %}", TEXT),
        ("{% set t = ('x' * 9999,) * 9999 %}{{ {t: 1} }}", TEXT),
        ("{{ ('%(a)s' * 10000) % {'a': 'x' * 10000} }}", TEXT),
        ("{{ range(10000) | join('x' * 10000) }}", TEXT),
        ("{{ ('x' * 10000).join(range(10000) | map('string')) }}", TEXT),
        ("{{ ('\\t' * 10000).expandtabs(10000) }}", TEXT),
        ("{{ ('\\n' * 10000) | indent(10000, true, true) }}", TEXT),
        ("{{ ('x' * 10000) | wordwrap(1, wrapstring='x' * 10000) }}", TEXT),
        ("{{ ([['x'] * 1000] * 100000) | sum(start=[]) | length }}", TEXT),
        ("{{ ([[1] * 1000] * 1000) | tojson(indent='x' * 10000) }}", TEXT),
        ("{{ [1, 2, 3] | tojson(separators=('x' * 900000, ': ')) }}", TEXT),
        ("{% set s %}{% for i in range(1000) %}{{ 'x' * 100000 }}{% endfor %}{% endset %}", TEXT),
        ("{% macro m() %}{% for i in range(99) %}{{ 'x' * 99999 }}{% endfor %}{% endmacro %}{{ m() }}", TEXT),
        ("{{ 'x' | center(10**9) }}", "1e.09 as an argument"),
        ("{{ 'x'.ljust(10**9) }}", "1e.09 as an argument"),
        ("{{ 1.5 | round(10**9, 'ceil') }}", "1e.09 as an argument"),
        ("{{ (5).to_bytes(10**9, 'big') }}", "1e.09 as an argument"),
        ("{{ '%999999999d' % 1 }}", "fields at most"),
        ("{{ '%*d' % (999999999, 1) }}", "fields at most"),
        ("{{ '{:>999999999}'.format(1) }}", "fields at most"),
        ("{{ '{:>{}}'.format(1, 999999999) }}", "fields at most|as an argument"),
        ("{{ ('f' * 5000) | int(base=16) }}", "int of 5,000 characters: expected at most 4,300"),
        ("{{ ('<>' * 99999) | striptags }}", "striptags of 199,998 characters"),
        ("{{ ('é' * 99999).encode('punycode') }}", "encoding 'punycode': expected utf-8"),
        ("{{ 'x'.translate({120: 'y' * 10000}) }}", "translate is not for templates"),
    ],
)
def test_sizes(source: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What would be too large is refused before it is made."""
    monkeypatch.setattr(chat_limits, "MAX_TEXT", 1_000_000)
    with pytest.raises(TemplateError, match=rf"tokenizer.chat_template, line 1: .*({message})"):
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize("given", [
    {"messages": [{"role": "user", "content": "x" * 600}] * 2},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 1200}]}]},
    {"messages": [], "tools": [{"x" * 1200: 1}]}, {"messages": [], "documents": [{"text": "x" * 1200}]},
])
def test_a_conversation_that_is_too_long_is_not_the_templates_fault(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages are named, how long they are, and what to do."""
    template = ChatTemplate("{{ messages }}")
    assert template.capabilities.string_content
    monkeypatch.setattr(chat_limits, "MAX_TEXT", 1000)
    with pytest.raises(TemplateError, match=r"^the messages, .* have 1,2\d\d characters: expected at most 1,000"):
        template.render(**given)


def test_size_of_the_conversation() -> None:
    """No line is to blame for all of them."""
    with pytest.raises(TemplateError, match=r"tokenizer.chat_template: .*text of more than 16,000,000 characters"):
        ChatTemplate("{% for i in range(1000) %}{{ 'x' * 100000 }}{% endfor %}").render([])


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) if false %}{% endfor %}{% for i in range(99999) if i < 0 %}{% endfor %}",
        "{% for i in range(9) recursive %}{% if loop.depth < 9 %}{{ loop(range(99)) }}{% endif %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(64) }}",
        "{% set s = 'x' * 9999999 %}{% for i in range(9999) %}{% set t = s[1:] %}{% endfor %}",
        "{% set s = 'x' * 9999999 %}{% for i in range(9999) %}{% set t = s | upper %}{% endfor %}",
        "{% set s = 'x' * 9999999 %}{% set t = s ~ 'y' %}{% for i in range(9999) %}{{ 'same' if s in t }}{% endfor %}",
        "{% set s = 'a' * 999999 %}{{ s.rfind('ab' ~ s[9999:]) }}",
        "{% set l = [[1] * 999] * 999 %}{% for i in range(9999) %}{{ 'same' if l == l + [1] }}{% endfor %}",
        "{% set l = [[1] * 999] * 999 %}{% for i in range(9999) %}{{ 'same' if l is equalto [l] }}{% endfor %}",
    ],
)
def test_steps(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops, calls and copies count, wherever they stand."""
    monkeypatch.setattr(chat_limits, "MAX_STEPS", 100_000)
    with pytest.raises(TemplateError, match=r"line 1: the template takes more than 100,010 steps"):
        ChatTemplate(source).render([{"role": "user", "content": "Hi"}])


def test_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What steps do not count ends with the time that a template may take."""
    monkeypatch.setattr(chat_limits, "MAX_SECONDS", 0.0)
    with pytest.raises(TemplateError, match=r"line 1: the template takes more than 0 seconds"):
        ChatTemplate("{% for m in messages %}{% endfor %}").render([{"role": "user", "content": "Hi"}])


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ '* %s in 123456: %d%%' % ('a', 7) }}", "* a in 123456: 7%"),
        ("{{ '* {} in 123456: {:>3}'.format('a', 7) }}", "* a in 123456:   7"),
        ("{{ '{{\"name\": {}}}'.format('a') }}", '{"name": a}'),
        ("{{ 'a/b/c'.rsplit('/', 1)[1] }}{{ 'é'.encode('utf-8') | length }}{{ '12' | int + 1 }}", "c213"),
        ("{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 'a' in 'ab' in ['ab'] }} {{ 3 not in [1, 2] }}", "True False True True"),
        ("{% macro m() %}{{ varargs | length }}{{ kwargs.a }}{% endmacro %}{{ m(1, 2, a=3) }}", "23"),
        ("{{ [1, 2, 3] | batch(2) | list }} {{ [1, 2, 3] | slice(2) | map('sum') | join(',') }}", "[[1, 2], [3]] 3,3"),
        ("{{ namespace(self=1).self }} {{ dict(self=1) }}", "1 {'self': 1}"),
    ],
)
def test_what_is_no_attack(source: str, text: str) -> None:
    """Formats, comparisons and the like that merely resemble one."""
    assert ChatTemplate(source).render([]) == text


def test_constants_are_not_computed_while_compiling() -> None:
    """A template is compiled when its model is loaded, and a filter on constants is no reason to fail there."""
    assert ChatTemplate("{% if false %}{{ 'x' | center(10**9) }}{% endif %}{{ 'a' | upper }}").render([]) == "A"


def test_long_conversations_are_no_attack() -> None:
    """Three thousand messages of four million characters, looked through at each message."""
    messages = [{"role": "user", "content": "word " * 280}] * 3000
    source = (
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index %}"
        "{% endif %}{% endfor %}{% for m in messages %}{{ m.content | trim ~ '\n' }}"
        "{% if messages[loop.index0:] | length == 1 %}{{ ns.last }}{% endif %}{% endfor %}"
    )
    assert len(ChatTemplate(source).render(messages)) == 3000 * 1400 + 4


def test_parts_of_names_that_start_with_an_underscore() -> None:
    """Namespaces keep nothing there, as in Transformers."""
    with pytest.raises(TemplateError, match=r"namespace attribute '_x'"):
        ChatTemplate("{% set ns = namespace(_x=1) %}").render([])
    with pytest.raises(TemplateError, match=r"namespace attribute '__class__'"):
        ChatTemplate("{% set ns = namespace() %}{% set ns.__class__ = 1 %}").render([])


@pytest.mark.parametrize(("source", "problem"), [
    ("x" * 70_000, "70,000 characters"), ("{{ [" + "a," * 6_000 + "a] }}", "line 1: the template has too many tags"),
    ("\n" + "{{ a }}" * 5_000, "line 2: the template has too many tags")])
def test_a_template_that_takes_long_to_compile_is_refused(source: str, problem: str) -> None:
    """Compiling takes more than linear time, and nothing can end it."""
    with pytest.raises(TemplateError, match=problem):
        ChatTemplate(source)
