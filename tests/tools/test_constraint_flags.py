"""Flags of `ggpy run` that say what answers have to be."""

from pathlib import Path

import pytest

from ggpy import ConstraintSpec
from tests.tools.conftest import Run


@pytest.mark.parametrize(("flags", "constraint"), [
    ([], None),
    (["--grammar", 'root ::= "a"'], ConstraintSpec("gbnf", 'root ::= "a"')),
    (["--grammar-file", "FILE"], ConstraintSpec("gbnf", "in a file\n")),
    (["-j", "{}"], ConstraintSpec("json_schema", "{}")),
    (["--json-schema", '{"type": "null"}'], ConstraintSpec("json_schema", '{"type": "null"}')),
    (["-jf", "FILE"], ConstraintSpec("json_schema", "in a file\n")),
])
def test_every_answer_is_constrained(run: Run, tmp_path: Path, flags: list[str], constraint: ConstraintSpec) -> None:
    """By a grammar or a schema, on the command line or in a file."""
    (tmp_path / "source").write_text("in a file\n", encoding="utf-8")
    flags = [str(tmp_path / "source") if flag == "FILE" else flag for flag in flags]
    assert run("m", "-cnv", *flags, stdin="one\ntwo\n").constraints == [constraint] * 2
