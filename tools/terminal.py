"""How commands speak to a person: tables on stdout, progress on stderr; both plain text when not on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar
from rich.table import Table

PIPED_WIDTH = 10_000      # characters; lines meant for another program are never cut or wrapped


def table(*headings: str) -> Table:
    """An empty table in ggpy's look, with no lines around it; without headings, two columns of names and values."""
    result = Table(box=None, pad_edge=False, header_style="bold", show_header=bool(headings))
    for heading in headings or ("name", "value"):
        result.add_column(heading, overflow="fold")
    return result


class _Console(Console):
    """Leaves a closed pipe to the command's main, which knows the exit code."""

    def on_broken_pipe(self) -> None:
        raise       # the BrokenPipeError that is being handled


def print_tables(*tables: Table) -> None:
    """Print tables on stdout with a blank line between them; cells are taken literally, never as markup."""
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    console = _Console(width=width, markup=False, emoji=False, highlight=False)
    for i, each in enumerate(tables):
        if i:
            console.print()
        console.print(each)


def printable(text: str) -> str:
    """`text` fit for a terminal: control characters and stray bytes, as a file may hold them, become U+FFFD."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


class Progress:
    """Shows how far `total_bytes` have come: a bar, or a line every tenth; use as a context manager."""

    def __init__(self, label: str, total_bytes: int) -> None:
        self.label = label
        self.total_bytes = total_bytes
        self._tenths = -1
        self._bar: Bar | None = None
        if sys.stderr.isatty():
            columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
            self._bar = Bar(TextColumn("{task.description}"), *columns, console=Console(stderr=True))
            self._task = self._bar.add_task(label, total=total_bytes)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def update(self, done_bytes: int) -> None:
        """Say that `done_bytes` of the whole are done."""
        done_bytes = min(done_bytes, self.total_bytes)
        if self._bar is not None:
            self._bar.update(self._task, completed=done_bytes)
            return
        tenths = 10 * done_bytes // max(1, self.total_bytes)
        if tenths > self._tenths:
            self._tenths = tenths
            line = f"{self.label}: {10 * tenths}% of {self.total_bytes / 1e6:,.0f} MB"
            print(line, file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
