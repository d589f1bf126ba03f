"""`ggpy list`: the catalogue, what of it is here, Hugging Face's cache, and what clients of `ggpy serve` made."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ggpy.errors import PullError, printable
from ggpy.hub import huggingface, names
from ggpy.hub.catalogue import CATALOGUE
from ggpy.hub.resolve import made_file
from ggpy.hub.store import ModelStore, StoredModel
from ggpy.tools.terminal import print_tables, table


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A model that has a name."""

    name: str
    aliases: tuple[str, ...]
    size_bytes: int             # of its files
    quant: str
    path: str | None            # where it lies, of a split one the first part; None: it is not here
    description: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--paths", action="store_true", help="show where each model lies instead of what it is")
    output.add_argument("--json", action="store_true",
                        help="print one JSON list, sizes in bytes; the path of a model that is not here is null")


def main(args: argparse.Namespace) -> int:
    models = list(listed())
    if args.json:
        print(json.dumps([asdict(model) for model in models]))
        return 0
    rows = table("NAME", "ALIAS", "SIZE", "QUANT", "HERE", "PATH" if args.paths else "DESCRIPTION")
    rows.columns[2].justify = "right"
    for model in models:
        rows.add_row(
            printable(model.name), ", ".join(model.aliases), f"{model.size_bytes / 1e6:,.0f} MB", model.quant,
            "yes" if model.path else "no", printable(model.path or "-") if args.paths else model.description)
    print_tables(rows)
    return 0


def listed() -> Iterator[Listed]:
    """The catalogue, then what Hugging Face's cache has, then what was made by /api/create and /api/copy."""
    for entry in CATALOGUE:
        yield Listed(name=entry.name, aliases=entry.aliases, size_bytes=entry.size_bytes, quant=entry.quant,
                     path=str(entry.path) if entry.is_present else None, description=entry.description)
    for model, files in huggingface.cached():
        yield Listed(name=str(model), aliases=(), size_bytes=sum(file.stat().st_size for file in files),
                     quant=names.quant_of(files[0].name), path=str(files[0]), description="from Hugging Face")
    for stored in ModelStore().models():
        file = file_of(stored)
        yield Listed(name=stored.name, aliases=(), size_bytes=0 if file is None else file.stat().st_size,
                     quant="" if file is None else names.quant_of(file.name), path=None if file is None else str(file),
                     description="made by a client of `ggpy serve`")


def file_of(model: StoredModel) -> Path | None:
    """The file that `model` was made of; None: it is not here."""
    try:
        return made_file(model, offline=True)
    except PullError:
        return None
