"""What a person sees while a model is loaded."""

import io
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ggpy.engine.config import SamplingParams
from ggpy.kernels.cpu import compile_workers, object_loader
from ggpy.kernels.cpu.sample_candidates import COMMON
from ggpy.text import Tokenizer
from ggpy.tools.loading import KernelProgress, compile_samplers, shortened
from tests.text.token_data import byte_bpe

Line = Callable[..., str]


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def line(monkeypatch: pytest.MonkeyPatch) -> Line:
    """The line in a window of so many columns."""
    def shown(columns: int, label: str) -> str:
        monkeypatch.setattr(sys, "stderr", Terminal())
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", "24")
        progress = KernelProgress(label)
        return progress._line(": preparing kernels 0/25", " (only the first time)").plain

    return shown


@pytest.mark.parametrize(("columns", "expected"), [
    (120, "loading /home/somebody/models/tiny-Q4_0.gguf: preparing kernels 0/25 (only the first time)"),
    (80, "loading ...odels/tiny-Q4_0.gguf: preparing kernels 0/25 (only the first time)"),
    (50, "loading ...ny-Q4_0.gguf: preparing kernels 0/25"),
    (20, "loading ...4_0.gguf: preparing kernels 0/25"),
])
def test_a_long_path_leaves_room_for_the_kernels(line: Line, columns: int, expected: str) -> None:
    """The end of the path, where the name is, stays; the window cuts what does not fit the narrowest."""
    assert line(columns, "loading /home/somebody/models/tiny-Q4_0.gguf") == expected
    assert len(expected) < columns or columns == 20


def test_a_short_label_stays(line: Line) -> None:
    """Nothing is cut that fits."""
    assert line(80, "loading smollm2") == "loading smollm2: preparing kernels 0/25 (only the first time)"
    assert shortened("loading m", 9) == "loading m"


def test_samplers_that_have_to_be_compiled_are_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once: then they are there."""
    llm, params = SimpleNamespace(tokenizer=Tokenizer.from_metadata(byte_bpe())), SamplingParams(mirostat=2)
    monkeypatch.setattr(object_loader, "_addresses", dict.fromkeys(COMMON, 1))
    monkeypatch.setattr(object_loader, "read_object", lambda path: None)

    def compile_all(names: list[str], progress: object_loader.Progress) -> None:
        object_loader._addresses.update(dict.fromkeys(names, 1))
        progress("", 0, len(names))

    monkeypatch.setattr(object_loader, "compile_kernels", compile_all)
    for _ in range(2):
        compile_samplers(llm, params, is_constrained=False)     # type: ignore[arg-type]
    assert capsys.readouterr().err == "loading samplers: preparing 4 kernels; they are kept for the next time\n"


def test_kernels_are_counted_before_the_first_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling the first takes seconds."""
    told: list[tuple[str, int, int]] = []
    monkeypatch.setenv("GGPY_HOME", str(tmp_path))
    monkeypatch.setattr(compile_workers, "_run_worker", lambda pending, report, workers: report(pending.take(set())))
    compile_workers.compile_kernels(["elementwise.add"], lambda *progress: told.append(progress))
    assert told == [("", 0, 1), ("elementwise.add", 1, 1)]
