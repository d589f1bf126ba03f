"""Ctrl-C, and whose it is."""

import signal
from collections.abc import Iterator

import pytest

from ggpy.tools import keyboard


@pytest.fixture
def sigint() -> Iterator[None]:
    """Leaves the signal as it was."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_calls() -> None:
    """Meanwhile, and as before then."""
    calls: list[str] = []
    signal.signal(signal.SIGINT, lambda number, frame: calls.append("before"))
    with keyboard.ctrl_c_calls(lambda: calls.append("stop")):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    assert calls == ["stop", "before"]


@pytest.mark.usefixtures("sigint")
def test_an_ignored_ctrl_c_stays_ignored() -> None:
    """A shell's `trap '' INT` and nohup mean it."""
    calls: list[int] = []
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with keyboard.ctrl_c_calls(lambda: calls.append(1)), keyboard.ctrl_c_once():
        signal.raise_signal(signal.SIGINT)
    assert calls == []
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_handler_that_python_does_not_know_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be put back."""
    monkeypatch.setattr(signal, "getsignal", lambda number: None)
    monkeypatch.delattr(signal, "signal")
    with keyboard.ctrl_c_calls(lambda: None):
        pass
