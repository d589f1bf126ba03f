"""The table of fields, and what a reply has of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).parents[1] / "data" / "server" / "fields.txt"
HEAD = re.compile(r"\[(?P<dialect>[\w-]+)\] (?P<method>[A-Z]+) (?P<path>\S+)")


class Section(NamedTuple):
    """One route."""

    dialect: str
    method: str
    path: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    streams: tuple[str, ...]
    without: dict[str, str]         # field -> why it does nothing


def read_table() -> list[Section]:
    """All sections, in order."""
    sections = []
    for text in TABLE.read_text(encoding="utf-8").split("\n\n"):
        found = HEAD.match(text)
        if found is not None:
            lines: dict[str, tuple[str, ...]] = {}
            without: dict[str, str] = {}
            for line in text.splitlines()[1:]:
                word, _, rest = line.partition(":")
                if word.startswith("without "):
                    without.update(dict.fromkeys(word.split()[1:], rest.strip()))
                else:
                    lines[word] = tuple(rest.split())
            sections.append(Section(found["dialect"], found["method"], found["path"], lines.get("takes", ()),
                                    lines.get("gives", ()), lines.get("streams", ()), without))
    return sections


def paths_of(value: Any, prefix: str = "") -> Iterator[str]:
    """The fields of a JSON value, those of objects in it after a "/"; arrays do not count."""
    if isinstance(value, list):
        for item in value:
            yield from paths_of(item, prefix)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield f"{prefix}{name}"
            yield from paths_of(item, f"{prefix}{name}/")
