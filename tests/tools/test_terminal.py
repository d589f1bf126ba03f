"""How commands show a pull."""

import io
import sys

import pytest

from ggpy.hub.progress import ProgressLines
from ggpy.tools.terminal import ProgressBar, pull_progress


class Terminal(io.StringIO):
    """A stderr that somebody looks at."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    """It names what is pulled, [brackets] taken literally, and never goes beyond the whole."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "120")
    with pull_progress("pulling [b]", 2_000_000) as shown:
        assert isinstance(shown, ProgressBar)
        shown.update(3_000_000)
    assert "pulling [b]" in terminal.getvalue()
    assert "2.0/2.0 MB" in terminal.getvalue()


def test_a_file_gets_a_line_for_every_tenth(capsys: pytest.CaptureFixture[str]) -> None:
    """Each tenth is told once."""
    with pull_progress("pulling a", 2_000_000) as shown:
        assert isinstance(shown, ProgressLines)
        for done_bytes in (0, 100_000, 200_000, 2_000_000, 2_000_001):
            shown.update(done_bytes)
    assert capsys.readouterr().err.splitlines() == [f"pulling a: {part}% of 2 MB" for part in (0, 10, 100)]
