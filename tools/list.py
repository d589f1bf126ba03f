"""`ggpy list`: the catalogue, what of it is on this machine, and the models in Hugging Face's cache."""

from __future__ import annotations

import argparse

from ggpy.errors import printable
from ggpy.hub import huggingface, names
from ggpy.hub.catalogue import CATALOGUE
from ggpy.tools.terminal import print_tables, table


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
    for model, files in huggingface.cached():
        size_bytes = sum(file.stat().st_size for file in files)
        rows.add_row(
            printable(str(model)), "", f"{size_bytes / 1e6:,.0f} MB", names.quant_of(files[0].name), "yes",
            printable(str(files[0])) if args.paths else "from Hugging Face",
        )
    print_tables(rows)
    return 0
