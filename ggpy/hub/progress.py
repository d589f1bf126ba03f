"""How a pull tells how far it is: to whom is for the caller to say."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self


class Progress(Protocol):
    """Is told how far one download has come."""

    def update(self, done_bytes: int) -> None:
        """Say that `done_bytes` of the whole are done."""


StartProgress = Callable[[str, int], AbstractContextManager[Progress]]      # what is pulled, bytes of the whole


class ProgressLines:
    """A line on stderr for every tenth of `total_bytes`; use as a context manager."""

    def __init__(self, label: str, total_bytes: int) -> None:
        self.label = label
        self.total_bytes = total_bytes
        self._tenths = -1

    def __enter__(self) -> Self:
        return self

    def update(self, done_bytes: int) -> None:
        tenths = 10 * min(done_bytes, self.total_bytes) // max(1, self.total_bytes)
        if tenths > self._tenths:
            self._tenths = tenths
            line = f"{self.label}: {10 * tenths}% of {self.total_bytes / 1e6:,.0f} MB"
            print(line, file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass
