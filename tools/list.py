"""`ggpy list`: the catalogue, what of it is on this machine, and the models in Hugging Face's cache."""

from __future__ import annotations

import argparse

from ggpy.tools import hub
from ggpy.tools.catalogue import CATALOGUE
from ggpy.tools.terminal import print_tables, printable, table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--paths", action="store_true", help="show where each model lies instead of what it is")


def main(args: argparse.Namespace) -> int:
    rows = table("NAME", "ALIAS", "SIZE", "QUANT", "HERE", "PATH" if args.paths else "DESCRIPTION")
    rows.columns[2].justify = "right"
    for entry in CATALOGUE:
        path = str(entry.path) if entry.is_present else "-"
        rows.add_row(
            entry.name, ", ".join(entry.aliases), f"{entry.size_bytes / 1e6:,.0f} MB", entry.quant,
            "yes" if entry.is_present else "no", path if args.paths else entry.description,
        )
    for model, file in hub.cached():
        rows.add_row(
            printable(str(model)), "", f"{file.stat().st_size / 1e6:,.0f} MB", hub.quant_of(file.name), "yes",
            printable(str(file)) if args.paths else "from Hugging Face",
        )
    print_tables(rows)
    return 0
