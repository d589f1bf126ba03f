"""Loading a model while somebody watches."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ggpy.hub.resolve import resolve_model
from ggpy.kernels.cpu.level import current_level
from ggpy.llm import LLM
from ggpy.tools.keyboard import ctrl_c_once, hidden_keys
from ggpy.tools.terminal import pull_progress


def load(spec: str, *, offline: bool = False, **options: Any) -> LLM:
    """The model that `spec` names, with progress on stderr: of the pull if it is absent, then of its kernels.

    Raises ConfigError for GGPY_CPU before anything is fetched.
    """
    current_level()
    path = resolve_model(spec, offline=offline, progress=pull_progress)
    with ctrl_c_once(), hidden_keys(), KernelProgress(f"loading {spec}") as progress:
        return LLM(path, progress=progress.update, **options)


class KernelProgress:
    """Says on stderr what happens before the first token: a line that changes, or one line if not on a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._status: Status | None = None
        self._announced = False
        if sys.stderr.isatty():
            self._status = Console(stderr=True).status(Text(label))

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def update(self, name: str, done: int, total: int) -> None:
        """Say that kernel `name` is the `done`-th of `total` that had to be compiled."""
        if self._status is not None:
            self._status.update(Text(f"{self._label}: preparing kernels {done}/{total} (only the first time)"))
        elif not self._announced:
            self._announced = True
            print(f"preparing {total} kernels; they are kept for the next time", file=sys.stderr, flush=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
