"""Flags that constrain answers, by a grammar or a JSON schema."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from ggpy.errors import GrammarError
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
    """What answers have to be; None: anything. Ends the process with 2 where two things are given, or one is broken."""
    given = [dest for dest in ("grammar", "json_schema") if getattr(args, dest) is not None]
    if len(given) > 1:
        args.fail(f"{' and '.join(args.flags[dest] for dest in given)} exclude each other")
    if not given:
        return None
    from ggpy.engine.constraint import ConstraintSpec

    dest, = given
    spec = ConstraintSpec("gbnf" if dest == "grammar" else "json_schema", getattr(args, dest))
    flag = args.flags.get(dest, dest)
    try:
        _check(spec)
    except GrammarError as error:
        is_name = flag in ("-j", "--json-schema") and _looks_like_a_file(spec.source)
        args.fail(f"{flag}: {error}" + "; -jf takes the name of a file" * is_name)
    return spec


def _check(spec: ConstraintSpec) -> None:
    """Raise GrammarError for what is wrong with `spec` whatever the model; tokens of a grammar are the model's."""
    from ggpy.engine.structured.closed_objects import read_schema
    from ggpy.engine.structured.gbnf import parse_gbnf
    from ggpy.engine.structured.json_schema import parse_json

    if spec.kind == "gbnf":
        parse_gbnf(spec.source, lambda text: 0)
    else:
        read_schema(parse_json(spec.source, "$"))


def _looks_like_a_file(source: str) -> bool:
    """Whether what should be a schema is a name, or curl's way to write one."""
    return source.startswith("@") or os.path.isfile(source)
