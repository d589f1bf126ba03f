"""Modelfiles."""

from __future__ import annotations

import pytest

from ggpy.errors import RequestError
from ggpy.hub.modelfile import check_parameters, parameter_lines, parse_modelfile

WHOLE = '''\
# a comment
from base:1b
PARAMETER temperature 0.5
parameter stop "<|a|>"
PARAMETER stop b
PARAMETER num_ctx 4096
PARAMETER use_mmap true
PARAMETER mirostat 2
TEMPLATE """{{ .Prompt }}
# no comment"""
SYSTEM  "one line"
ADAPTER @sha256:ab
LICENSE """first

licence"""
LICENSE second
MESSAGE user Is 7 prime?
MESSAGE assistant """yes
and no"""
RENDERER any
'''


def test_all_instructions_are_read() -> None:
    """In any case of letters; a parameter that may be there several times has all of its values."""
    found = parse_modelfile(WHOLE)
    assert found.sources == ["base:1b"]
    assert found.parameters == {"temperature": 0.5, "stop": ["<|a|>", "b"], "num_ctx": 4096, "use_mmap": True}
    assert found.template == "{{ .Prompt }}\n# no comment"
    assert found.system == "one line"
    assert found.adapters == ["@sha256:ab"]
    assert found.licenses == ["first\n\nlicence", "second"]
    assert found.messages == [{"role": "user", "content": "Is 7 prime?"},
                              {"role": "assistant", "content": "yes\nand no"}]


@pytest.mark.parametrize(("text", "system"), [
    ('FROM a\nSYSTEM """x"""', "x"), ('FROM a\nSYSTEM """"x"""', '"x'), ('FROM a\nSYSTEM "x\ny"', "x\ny"),
    ("FROM a\nSYSTEM it's \"so\"", "it's \"so\""), ('FROM a\nSYSTEM ""', ""), ('FROM a\r\nSYSTEM x\r\n', "x"),
])
def test_quotes_are_around_a_text_or_part_of_it(text: str, system: str) -> None:
    """Nothing in them is escaped."""
    assert parse_modelfile(text).system == system


@pytest.mark.parametrize(("text", "problem"), [
    ("SYSTEM x", "no FROM line"),
    ("", "no FROM line"),
    ("FROM a\n\nTASTE sweet", r"\(line 3\): command must be one of"),
    ('FROM a\nSYSTEM """x', r"\(line 2\): unexpected EOF"),
    ('FROM a\nSYSTEM "x', "unexpected EOF"),
    ("FROM a\nPARAMETER heat 1", r"\(line 2\): unknown parameter 'heat'"),
    ("FROM a\nPARAMETER top_k many", 'option "top_k" must be of type integer'),
    ("FROM a\nPARAMETER temperature", "has no value"),
    ("FROM a\nMESSAGE robot x", "role must be one of"),
    ("FROM", "has no value"),
])
def test_what_is_wrong_is_said_with_its_line(text: str, problem: str) -> None:
    """So that it is found."""
    with pytest.raises(RequestError, match=problem):
        parse_modelfile(text)


def test_parameters_have_their_types() -> None:
    """Numbers with a fraction are cut where whole ones are wanted; what is null, or of old, is left out."""
    given = {"top_k": 7.9, "seed": "3", "stop": "x", "temperature": 1, "numa": True, "top_p": None}
    assert check_parameters(given) == {"top_k": 7, "seed": 3, "stop": ["x"], "temperature": 1.0}


@pytest.mark.parametrize("value", [True, [1], {}, "x", float("nan"), float("inf"), 10**400, "1" * 50])
def test_what_is_no_number_is_refused(value: object) -> None:
    """Also what no number can hold."""
    with pytest.raises(RequestError, match="must be of type float32"):
        check_parameters({"temperature": value})


def test_parameters_are_written_as_they_are_read() -> None:
    """A line for each value."""
    parameters = {"temperature": 0.25, "top_k": 3, "stop": ["a", "b c"], "use_mmap": False}
    lines = parameter_lines(parameters)
    assert lines == [("temperature", "0.25"), ("top_k", "3"), ("stop", '"a"'), ("stop", '"b c"'), ("use_mmap", "false")]
    text = "FROM x\n" + "\n".join(f"PARAMETER {name} {value}" for name, value in lines)
    assert parse_modelfile(text).parameters == parameters
