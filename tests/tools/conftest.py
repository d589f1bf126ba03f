"""Running `ggpy run` with an LLM that echoes: the fixture `run`, of type Run."""

import contextlib
import io
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from ggpy import cli
from ggpy.text.chat import CHATML
from ggpy.tools import chat_session, loading
from tests.tools.echo_llm import EchoLLM

Run = Callable[..., EchoLLM]


class TypedLines:
    """A terminal's stdin where lines are typed, "^C" for an interrupt."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = iter(lines)

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        line = next(self.lines, None)
        if line == "^C":
            raise KeyboardInterrupt
        return "" if line is None else line + "\n"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `ggpy run ...` with `stdin`, or on a terminal where `lines` are typed; returns the LLM it loaded."""
    def call(*argv: str, stdin: str = "", lines: Sequence[str] | None = None, template: bool = True,
             code: int = 0, metadata: dict[str, Any] | None = None) -> EchoLLM:
        loaded: list[EchoLLM] = []

        def load(spec: str, **options: Any) -> EchoLLM:
            known = {"tokenizer.chat_template": CHATML} if template else {}
            loaded.append(EchoLLM(spec, known | (metadata or {}), options))
            return loaded[-1]

        monkeypatch.setattr(loading, "load", load)
        monkeypatch.setattr(loading, "compile_samplers", lambda llm, params, is_constrained: None)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())) if lines is None
                            else TypedLines(lines))
        monkeypatch.setattr(chat_session, "hidden_keys", contextlib.nullcontext)
        assert cli.main(["run", *argv]) == code
        return loaded[0]

    return call
