"""How commands speak to a person: tables on stdout, progress on stderr; both plain text when not on a terminal."""

from __future__ import annotations

import io
import sys
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bar
from rich.table import Table

from ggpy.hub.progress import Progress, ProgressLines
from ggpy.tools.keyboard import ctrl_c_once, hidden_keys

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
    piped = None if sys.stdout.isatty() else io.StringIO()
    console = _Console(file=piped, width=PIPED_WIDTH if piped else None, markup=False, emoji=False, highlight=False)
    for i, each in enumerate(tables):
        if i:
            console.print()
        console.print(each)
    if piped is not None:
        for line in piped.getvalue().splitlines():
            print(line.rstrip())        # rich fills each row to the table's width


class ProgressBar:
    """A bar on stderr that shows how far `total_bytes` have come; use as a context manager. Keys do not tear it."""

    def __init__(self, label: str, total_bytes: int) -> None:
        self._total_bytes = total_bytes
        columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        self._bar = Bar(TextColumn("{task.description}", markup=False), *columns, console=Console(stderr=True))
        self._task = self._bar.add_task(label, total=total_bytes)
        self._shown = ExitStack()

    def __enter__(self) -> Self:
        self._shown.enter_context(ctrl_c_once())
        self._shown.enter_context(hidden_keys())
        self._shown.enter_context(self._bar)
        return self

    def update(self, done_bytes: int) -> None:
        """Say that `done_bytes` of the whole are done."""
        self._bar.update(self._task, completed=min(done_bytes, self._total_bytes))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shown.close()


def pull_progress(label: str, total_bytes: int) -> AbstractContextManager[Progress]:
    """How a command shows a pull: a bar, or lines if stderr is no terminal."""
    shown = ProgressBar if sys.stderr.isatty() else ProgressLines
    return shown(label, total_bytes)
