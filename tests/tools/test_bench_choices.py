"""What the scripts of bench/ are told is checked before they load anything."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))      # bench is no part of an installed ggpy

from bench import serving, speculation, structured, vs_llama_cpp
from bench.choices import some_of


@pytest.mark.parametrize(("main", "flag", "value"), [
    (structured.main, "--streams", "1,x"), (structured.main, "--streams", "0"), (serving.main, "--case", "chats,x"),
    (serving.main, "--scale", "nan"), (speculation.main, "--proposers", "x"), (vs_llama_cpp.main, "-t", "1,x"),
    (vs_llama_cpp.main, "--only", "x")])
def test_values_that_cannot_be_are_wrong_usage(main: Callable[[], None], flag: str, value: str,
                                               monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, and a line that names the flag."""
    monkeypatch.setattr(sys, "argv", ["script", flag, value])
    with pytest.raises(SystemExit, match="2"):
        main()
    assert f"error: argument {flag}" in capsys.readouterr().err


def test_some_of_what_there_is() -> None:
    """In the order that was given; the message names the first that is not known."""
    read = some_of(("a", "b", "c"))
    assert read("c,a") == ["c", "a"]
    with pytest.raises(argparse.ArgumentTypeError, match="'x': expected some of a, b, c"):
        read("a,x,y")
