"""How a page of the documentation is written, or compared with what it should be."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

WIDTH = 120


def filled(text: str, *, is_item: bool = False) -> str:
    """`text` in lines of the page; those of an item of a list stand behind its dash, which is put before it."""
    return textwrap.fill(text, WIDTH, initial_indent="- " if is_item else "", subsequent_indent="  " if is_item else "",
                         break_long_words=False, break_on_hyphens=False)


def write_or_check(page: Path, text: str, script: str) -> int:
    """Writes `text`, or with --check says whether it stands there; -> the exit code of `script`, which made it."""
    if sys.argv[1:] != ["--check"]:
        page.write_text(text, encoding="utf-8", newline="\n")
        return 0
    if page.exists() and page.read_text(encoding="utf-8") == text:
        return 0
    print(f"docs/{page.name} is out of date: run `python docs/{script}`", file=sys.stderr)
    return 1
