"""Loading a model while somebody watches."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from ggpy.engine.config import SamplingParams
from ggpy.engine.sampling import Sampler
from ggpy.hub.resolve import resolve
from ggpy.kernels.cpu import object_loader
from ggpy.kernels.cpu.level import current_level
from ggpy.llm import LLM
from ggpy.tools.keyboard import ctrl_c_once, hidden_keys
from ggpy.tools.terminal import pull_progress

SPINNER_COLUMNS = 3     # what stands in front of the line, and one column that is left free
ROOM_FOR_LABEL = 24     # characters of a label that are worth more than the note
LEAST_NAME = 8          # characters of a model's name that are shown in any window


def load(spec: str, *, offline: bool = False, **options: Any) -> LLM:
    """The model that `spec` names, with progress on stderr: of the pull if it is absent, then of its kernels.

    So is a draft model pulled that `options` name.

    Raises ConfigError for GGPY_CPU before anything is fetched.
    """
    current_level()
    model = resolve(spec, offline=offline, progress=pull_progress)
    if options.get("draft_model") is not None:
        options["draft_model"] = resolve(options["draft_model"], offline=offline, progress=pull_progress)
    with ctrl_c_once(), hidden_keys(), KernelProgress(f"loading {spec}") as progress:
        return LLM(model, progress=progress.update, **options)


def compile_samplers(llm: LLM, params: SamplingParams, *, is_constrained: bool) -> None:
    """Have the samplers of `params` compiled, with progress on stderr if that takes time, so that no answer waits."""
    names = object_loader.missing(Sampler.kernels(params, llm.tokenizer, is_masked=is_constrained))
    if names:
        with ctrl_c_once(), hidden_keys(), KernelProgress("loading samplers") as progress:
            object_loader.addresses(names, progress.update)


def shortened(label: str, width: int) -> str:
    """`label`, or its first word and its end, where a path has the file's name, in `width` characters or a few more."""
    if len(label) <= width:
        return label
    verb, _, name = label.partition(" ")
    return f"{verb} ...{name[-max(LEAST_NAME, width - len(verb) - len(' ...')):]}"


class KernelProgress:
    """Says on stderr what happens before the first token: a line that changes, or one line if not on a terminal."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._status: Status | None = None
        self._announced = False
        if sys.stderr.isatty():
            self._console = Console(stderr=True)
            self._status = self._console.status(self._line())

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def update(self, name: str, done: int, total: int) -> None:
        """Say that `done` of the `total` kernels that have to be compiled are there, kernel `name` just now."""
        if self._status is not None:
            self._status.update(self._line(f": preparing kernels {done}/{total}", " (only the first time)"))
        elif not self._announced:
            self._announced = True
            print(f"{self._label}: preparing {total} kernels; they are kept for the next time", file=sys.stderr,
                  flush=True)

    def _line(self, state: str = "", note: str = "") -> Text:
        """The label and what is said of it, on one line: a long label loses its middle, a narrow window the note."""
        room = self._console.width - SPINNER_COLUMNS - len(state)
        if min(len(self._label), ROOM_FOR_LABEL) + len(note) > room:
            note = ""
        return Text(shortened(self._label, room - len(note)) + state + note, no_wrap=True, overflow="ellipsis")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()
