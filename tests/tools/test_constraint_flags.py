"""Flags of `ggpy run` that say what answers have to be."""

from pathlib import Path

import pytest

from ggpy import ConstraintSpec
from tests.tools.conftest import Run

GRAMMAR, SCHEMA = 'root ::= "a"\n', '{"type": "null"}\n'


@pytest.mark.parametrize(("flags", "constraint"), [
    ([], None),
    (["--grammar", 'root ::= "a"'], ConstraintSpec("gbnf", 'root ::= "a"')),
    (["--grammar", "root ::= <think> [a-z]+"], ConstraintSpec("gbnf", "root ::= <think> [a-z]+")),
    (["--grammar-file", "a.gbnf"], ConstraintSpec("gbnf", GRAMMAR)),
    (["-j", "{}"], ConstraintSpec("json_schema", "{}")),
    (["--json-schema", '{"type": "null"}'], ConstraintSpec("json_schema", '{"type": "null"}')),
    (["-jf", "a.json"], ConstraintSpec("json_schema", SCHEMA)),
])
def test_every_answer_is_constrained(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str],
                                     constraint: ConstraintSpec | None) -> None:
    """By a grammar or a schema, on the command line or in a file."""
    monkeypatch.chdir(tmp_path)
    Path("a.gbnf").write_text(GRAMMAR, encoding="utf-8")
    Path("a.json").write_text(SCHEMA, encoding="utf-8")
    assert run("m", "-cnv", *flags, stdin="one\ntwo\n").constraints == [constraint] * 2


@pytest.mark.parametrize(("flags", "message"), [
    (["-j", "{"], "-j: $: line 1, column 2: not JSON: "),
    (["--json-schema", '{"type": "strin"}'], "--json-schema: $.type: expected one of null, "),
    (["-jf", "a.gbnf"], "-jf: $: line 1, column 1: not JSON: "),
    (["-j", "@a.json"], "-j: $: line 1, column 1: not JSON: Expecting value; -jf takes the name of a file"),
    (["-j", "a.json"], "-j: $: line 1, column 1: not JSON: Expecting value; -jf takes the name of a file"),
    (["--grammar", "root ::= ("], "--grammar: line 1, column "),
    (["--grammar-file", "a.json"], "--grammar-file: line 1, column 1: "),
])
def test_what_is_broken_is_wrong_usage(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                       capsys: pytest.CaptureFixture[str], flags: list[str], message: str) -> None:
    """Told before a model is loaded, with the flag's name."""
    monkeypatch.chdir(tmp_path)
    Path("a.gbnf").write_text(GRAMMAR, encoding="utf-8")
    Path("a.json").write_text(SCHEMA, encoding="utf-8")
    with pytest.raises(SystemExit, match="2"):
        run("m", "hello", *flags)
    assert capsys.readouterr().err.startswith(f"ggpy run: {message}")


def test_an_answer_that_is_cut_off_says_so(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A script would not know its JSON for the beginning of one otherwise."""
    run("m", "-j", "{}", "-n", "2", "one two three")
    output = capsys.readouterr()
    assert output.out == "one two \n"
    assert "the answer was cut off: it is only the beginning of what the constraint asks for" in output.err
    run("m", "-n", "2", "one two three")
    assert "cut off" not in capsys.readouterr().err
