"""`ggpy doctor`: what this machine and installation offer, and what to do about what is wrong."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict

from rich.table import Table

from ggpy.errors import ConfigError, printable
from ggpy.tools import checks
from ggpy.tools.checks import Section
from ggpy.tools.kernel_cache import remove_stale
from ggpy.tools.terminal import print_tables, table

SECTIONS: dict[str, Callable[[], Section]] = {
    "versions": checks.versions,
    "processor": checks.processor,
    "cores": checks.cores,
    "memory": checks.memory,
    "bandwidth": checks.bandwidth,
    "huge pages": checks.huge_pages,
    "kernels": checks.kernels,
    "gpu": checks.gpu,
    "models": checks.models,
    "disk": checks.disk,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object, sizes in bytes")
    parser.add_argument("--clean", action="store_true",
                        help="first delete compiled kernels that no longer fit ggpy, Numba or this processor")


def main(args: argparse.Namespace) -> int:
    if args.clean:
        n_files, size_bytes = remove_stale()
        print(f"deleted {n_files:,} stale kernels, {size_bytes / 1e6:,.1f} MB", file=sys.stderr)
    sections = dict(examine())
    if args.json:
        print(json.dumps({name: asdict(section) for name, section in sections.items()}))
    else:
        _print(sections)
    return 1 if any(problem.is_fatal for section in sections.values() for problem in section.problems) else 0


def examine() -> Iterator[tuple[str, Section]]:
    """Every section; one that fails says so, and the others go on."""
    for name, look in SECTIONS.items():
        try:
            yield name, look()
        except ConfigError as error:
            section = Section()
            section.problem(str(error), "change or unset that setting")
            yield name, section
        except Exception as error:      # whatever is broken: telling it is what the command is for
            section = Section()
            section.problem(f"this could not be looked at: {type(error).__name__}: {error}",
                            "reinstall ggpy, and report it if that does not help")
            yield name, section


def _print(sections: dict[str, Section]) -> None:
    found = table()
    found.add_column("", overflow="fold")
    for name, section in sections.items():
        for i, (fact, text) in enumerate(_rows(section)):
            found.add_row("" if i else name, fact, printable(text))
    problems = table("PROBLEM", "WHAT TO DO")
    for section in sections.values():
        for problem in section.problems:
            problems.add_row(printable(problem.what), printable(problem.advice))
    verdict = Table.grid()
    verdict.add_row("no problem was found")
    print_tables(found, problems if problems.row_count else verdict)


def _rows(section: Section) -> Iterator[tuple[str, str]]:
    """Names and values; the number of some things and their size are one row."""
    facts = section.facts
    for fact, value in facts.items():
        counted = fact.removesuffix(" bytes")
        if fact != counted and counted in facts:
            continue
        size = facts.get(f"{fact} bytes")
        shown = _shown(fact, value) + (f", {_shown('bytes', size)}" if size is not None else "")
        yield "size" if fact == "bytes" else counted, shown


def _shown(fact: str, value: object) -> str:
    if value is None:
        return "not known"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and fact.endswith("bytes"):
        return f"{value / 1e9:,.1f} GB" if value >= 1e9 else f"{value / 1e6:,.1f} MB"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
