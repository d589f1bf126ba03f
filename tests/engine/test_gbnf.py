"""Grammars of llama.cpp: what they mean, and what is said about broken ones."""

import contextlib
import itertools
from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ggpy.engine.structured.gbnf import Chars, Choice, Node, Repeat, Rule, Sequence, Token, parse_gbnf
from ggpy.engine.structured.gbnf_lark import gbnf_to_lark
from ggpy.errors import GrammarError
from tests.engine.grammars import CALL, END, accepts, allowed, start, texts

ARITHMETIC = r"""
# sums of products
root   ::= sum "\n"
sum    ::= term (ws [-+] ws term)*
term   ::= factor | term [*/] factor      # left-recursive
factor ::= [0-9]{1,3} | "(" sum ")"
ws     ::= | " "
"""


def matches(rules: Mapping[str, Node], text: str) -> bool:
    """Whether `text` is in the language of `rules`, by the plain meaning of each node."""
    ends: dict[tuple[str, int], frozenset[int]] = {}

    def of(node: Node, at: int) -> frozenset[int]:
        """Where texts of `node` that begin at `at` end, as far as is known."""
        match node:
            case Chars(ranges):
                found = at < len(text) and any(low <= ord(text[at]) <= high for low, high in ranges)
                return frozenset({at + 1} if found else ())
            case Rule(name):
                return ends.setdefault((name, at), frozenset())
            case Sequence(items):
                places = frozenset({at})
                for item in items:
                    places = frozenset().union(*(of(item, place) for place in places))
                return places
            case Choice(options):
                return frozenset().union(*(of(option, at) for option in options))
            case Repeat(item, least, most):
                places, result = frozenset({at}), frozenset({at} if least == 0 else ())
                for n in range(1, (least + len(text) + 1 if most is None else most) + 1):
                    places = frozenset().union(*(of(item, place) for place in places))
                    result |= places if n >= least else frozenset()
                return result
            case Token():
                raise AssertionError

    while True:
        before = dict(ends)
        found = len(text) in of(Rule("root", 0), 0)
        for name, at in list(ends):
            ends[name, at] |= of(rules[name], at)
        if before == ends:
            return found


@pytest.mark.parametrize("text", ["1\n", "1 + 22\n", "1*(2+3)-4/5*6\n", "((7))\n"])
def test_texts_of_a_recursive_grammar(text: str) -> None:
    """Comments, empty alternatives, left recursion, classes and counts."""
    assert accepts("gbnf", ARITHMETIC, text)


@pytest.mark.parametrize("text", ["1", "1  + 2\n", "1234\n", "(1\n", "1+\n", "\n", "1 \n"])
def test_texts_that_it_does_not_allow(text: str) -> None:
    """Masks and drafts agree on where they go wrong."""
    assert not accepts("gbnf", ARITHMETIC, text)


@pytest.mark.parametrize(("source", "right", "wrong"), [
    (r'root ::= "a\"\\\n\t\r"', 'a"\\\n\t\r', 'a"'),
    (r'root ::= "\x41\u00e9\U0001F600"', "Aé😀", "Aé"),
    (r"root ::= [^\]\-a-c\x30]", "d", "b"),
    (r"root ::= [a\-c]", "-", "b"),
    (r"root ::= [-a]", "-", "b"),
    (r"root ::= [a-]", "-", "b"),
    (r"root ::= [é-ü]+", "éêü", "è"),
    (r"root ::= [^x]", "\n", "x"),
    (r"root ::= .", "\n", "ab"),
    (r'root ::= "ab"{2}', "abab", "abb"),
    (r'root ::= "a"{1,}', "aaa", "b"),
    (r'root ::= "a"{ 0 , 2 }', "aa", "aaa"),
    (r'root ::= ("a" | "b" )+ "a"', "abba", "ab"),
    (r'root ::= ("a"+)? "b"*', "abb", "ba"),
    ('root ::= (\n  "a" # one\n  | "b"\n)', "b", "c"),
    ('root ::= "a" |\n  x-1\r\n\r\nx-1 ::= "b"', "b", "x"),
    ('root::=x\nx::="a"', "a", "x"),
    ('root ::= x "a"\nx ::= "a"*', "aaa", "b"),
    ('root ::= [a-z]* "x" y\ny ::= "(" y ")" |', "axxx((()))", "ax(()"),
    ('root ::= x | "abab" x "c"\nx ::= "a" x "b" | "ab"', "ababaabbc", "abab"),
    (r'root ::= a "é" b' '\na ::= ("x" "è"?)+\nb ::= "(" b ")" | "y"', "xxéy", "xèy"),
])
def test_what_each_form_means(source: str, right: str, wrong: str) -> None:
    """One text that the grammar allows, and one that it does not."""
    assert accepts("gbnf", source, right)
    assert not accepts("gbnf", source, wrong)


def test_tokens_are_named_by_spelling_or_number() -> None:
    """And with `!` any other token is meant."""
    constraint = start("gbnf", 'root ::= <call> x !<[98]>\nx ::= "a" | <[98]>')
    assert allowed(constraint) == [{CALL}]
    constraint.accept(CALL)
    assert texts(constraint) == {"a", "b"}
    constraint.accept(97)
    rows = allowed(constraint)[0]
    assert 98 not in rows
    assert {97, CALL} <= rows
    assert END not in rows


@pytest.mark.parametrize(("source", "message"), [
    ("", r"line 1, column 1: the grammar has no rule 'root', where answers begin; its rules are none"),
    ("x ::= [a]", "no rule 'root', where answers begin; its rules are x"),
    ("root ::= x\n", "line 1, column 10: rule 'x' is not defined"),
    ('root ::= "a\n', "line 1, column 10: this literal has no end"),
    ("root ::= [a", "line 1, column 10: this class has no end"),
    ("root ::= []", "line 1, column 10: no character is in this class"),
    ("root ::= [z-a]", "line 1, column 11: the range 'z-a' ends before it begins"),
    ('root ::= ("a"', "line 1, column 10: this group has no end"),
    ('root ::= "a")', r"line 1, column 13: expected a sequence or the end of the line, found '\)'"),
    ('root ::= "a"\nroot ::= "b"', "line 2, column 1: rule 'root' is defined for the second time"),
    ('root = "a"', "line 1, column 6: expected '::=', found '='"),
    ("root ::= *", r"line 1, column 10: there is nothing before '\*' to repeat"),
    ('root ::= "a"{2,1}', r"line 1, column 13: expected \{m,n\} with m up to n, found 2 and 1"),
    ('root ::= "a"{x}', "line 1, column 14: expected a number up to 100,000, found 'x'"),
    ('root ::= "a"{1', "line 1, column 15: expected '}', found the end of the grammar"),
    ('root ::= "a"{9999999}', "expected a number up to 100,000, found 9999999"),
    (r'root ::= "\q"', r"line 1, column 11: unknown escape"),
    (r'root ::= "\x4"', "line 1, column 11: expected 2 hexadecimal digits, found '4\"'"),
    (r'root ::= "\ud800"', "line 1, column 11: U\\+D800 is no character"),
    (r'root ::= "\UFFFFFFFF"', "line 1, column 11: U\\+FFFFFFFF is no character"),
    ('root ::= "a"\n\n  x ::= ,', "line 3, column 9: expected a literal"),
    ("root ::= <nothing>", "line 1, column 10: '<nothing>' is no token of this model"),
    ("root ::= <[99999]>", "line 1, column 10: '<\\[99999\\]>' is no token of this model"),
    ("root ::= <call", "line 1, column 10: this token has no end"),
    ("root ::= " + "(" * 100, "line 1, column 70: groups are nested deeper than 60 levels"),
    ("root ::= root", "there is no text that this gbnf constraint allows"),
])
def test_errors_name_line_and_column(source: str, message: str) -> None:
    """Whatever is wrong with a grammar."""
    with pytest.raises(GrammarError, match=message):
        start("gbnf", source)


LEAVES = st.sampled_from(['"a"', '"b"', '"ab"', '"aab"', "[ab]", "[^a]", "[a]", "x", "y", '""'])
ITEMS = st.recursive(LEAVES, lambda inner: st.one_of(
    st.builds("({})".format, st.lists(inner, min_size=1, max_size=3).map(" ".join)),
    st.builds("({})".format, st.lists(inner, min_size=2, max_size=3).map(" | ".join)),
    st.builds("({}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,0}", "{1,}"]))), max_leaves=8)
BODIES = st.lists(st.lists(ITEMS, min_size=1, max_size=3).map(" ".join), min_size=1, max_size=3).map(" | ".join)
TEXTS = ["".join(letters) for n in range(6) for letters in itertools.product("ab", repeat=n)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(BODIES, BODIES, BODIES)
def test_lexemes_change_nothing(root: str, x: str, y: str) -> None:
    """Random grammars over two letters, against the plain meaning of their rules, for texts of up to five letters."""
    source = f"root ::= {root}\nx ::= {x}\ny ::= {y}\n"
    rules = parse_gbnf(source, lambda text: None)
    meant = {text for text in TEXTS if matches(rules, text)}
    try:
        start("gbnf", source)
    except GrammarError:
        assert not meant, "there is no text that it allows"
    else:
        assert {text for text in TEXTS if accepts("gbnf", source, text)} == meant


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet='rotx:=abc"[]()<>!|*+?{}0123,.-^\\\n\r\t #é', max_size=80).map("root ::= ".__add__))
def test_any_text_is_a_grammar_or_an_error(source: str) -> None:
    """Nothing but GrammarError is ever raised."""
    with contextlib.suppress(GrammarError):
        gbnf_to_lark(parse_gbnf(source, lambda text: 5))


@pytest.mark.parametrize("source", [
    "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(1900)) + 'r1900 ::= "a"\n',
    "root ::= " + " | ".join(f'"word {i} of many" root' for i in range(1000)),
    "root ::= " + " ".join(f"r{i}" for i in range(900)) + "\n"
    + "".join(f'r{i} ::= [a-z]* r{i} | "a{i}"\n' for i in range(900)),
    'root ::= ((([a-z]{1,999}){1,999}){1,999}){1,999} root | "x"',
    "root ::= " + "(" * 50 + '"a"' + ")*" * 50,
], ids=["doubling", "many words", "many alike", "counts", "stars"])
def test_hostile_grammars_end(source: str) -> None:
    """With a result or an error, never a crash of the compiler."""
    with contextlib.suppress(GrammarError):
        start("gbnf", source)
