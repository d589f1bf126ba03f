"""Flags that constrain answers, by a grammar or a JSON schema."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ggpy.tools import inputs

if TYPE_CHECKING:
    from ggpy.engine.constraint import ConstraintSpec

def add_constraint_flags(parser: argparse.ArgumentParser) -> None:
    """What an answer has to be."""
    group = parser.add_argument_group("constraints")
    group.add_argument("--grammar", metavar="GBNF", help="answers are texts of this grammar of llama.cpp")
    group.add_argument("--grammar-file", dest="grammar", type=inputs.file_text, metavar="FILE", help="a file with it")
    group.add_argument("-j", "--json-schema", metavar="SCHEMA", help="answers are JSON that meets this schema; {} for "
                       "any JSON")
    group.add_argument("-jf", "--json-schema-file", dest="json_schema", type=inputs.file_text, metavar="FILE",
                       help="a file with it")


def read_constraint(args: argparse.Namespace) -> ConstraintSpec | None:
    """What answers have to be; None: anything. Ends the process with 2 where two things are given."""
    given = [dest for dest in ("grammar", "json_schema") if getattr(args, dest) is not None]
    if len(given) > 1:
        args.fail(f"{' and '.join(args.flags[dest] for dest in given)} exclude each other")
    if not given:
        return None
    from ggpy.engine.constraint import ConstraintSpec

    return ConstraintSpec("gbnf" if given[0] == "grammar" else "json_schema", getattr(args, given[0]))
