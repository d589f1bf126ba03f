"""How a command line is read."""

import argparse
from typing import Any

import pytest

from ggpy.errors import ConfigError
from ggpy.tools.parser import SHOWN, Parser, shown


@pytest.fixture
def parser() -> Parser:
    """Knows words, flags with a value, with one that may be missing and without, and a list."""
    parser = Parser(prog="p")
    parser.add_argument("words", nargs="*")
    parser.add_argument("-t", "--threads", type=int, default=7)
    parser.add_argument("-m")
    parser.add_argument("--color", nargs="?", const="on", choices=("on", "off"))
    parser.add_argument("-st", "--single-turn", action="store_true")
    parser.add_argument("-r", action="append")
    parser.add_argument("-sys", "--system-prompt")
    parser.add_argument("-n", "--predict", dest="max_tokens")
    parser.add_argument("--lora", help=argparse.SUPPRESS)
    return parser


@pytest.mark.parametrize(("argv", "expected"), [
    (["-t", "3"], {"threads": 3}),
    (["--threads=3"], {"threads": 3}),
    (["-t", "-3"], {"threads": -3}),
    (["-t", "3", "-t", "4"], {"threads": 4}),
    (["-m", "-t"], {"m": "-t", "threads": 7}),
    (["-m", "--"], {"m": "--"}),
    (["-m", ""], {"m": ""}),
    (["-m", "a=b"], {"m": "a=b"}),
    (["--single_turn"], {"single_turn": True}),
    (["-r", "a", "-r", "b"], {"r": ["a", "b"]}),
    (["--color"], {"color": "on"}),
    (["--color", "off"], {"color": "off"}),
    (["--color", "red"], {"color": "on", "words": ["red"]}),
    (["a", "-st", "b", "-t", "1", "c"], {"words": ["a", "b", "c"], "threads": 1}),
    (["a", "--", "-t", "--x"], {"words": ["a", "-t", "--x"], "threads": 7}),
    (["-5", "-", "- an item", "-x and y"], {"words": ["-5", "-", "- an item", "-x and y"]}),
    ([], {"words": [], "threads": 7, "single_turn": False, "r": None}),
])
def test_a_command_line(parser: Parser, argv: list[str], expected: dict[str, Any]) -> None:
    """Flags are whole words, anywhere; values are taken as they stand."""
    found = vars(parser.parse(argv))
    assert {name: found[name] for name in expected} == expected


def test_the_flags_that_were_given_are_known_as_they_were_spelled(parser: Parser) -> None:
    """For messages, and to tell a value that was chosen from a default."""
    assert parser.parse(["--threads=7", "a", "-st"]).flags == {"threads": "--threads", "single_turn": "-st"}


@pytest.mark.parametrize(("argv", "message"), [
    (["-mt", "1"], "there is no flag -mt"),
    (["-t4"], "-t4: a flag and its value are two words, -t 4"),
    (["-x4"], "there is no flag -x4"),
    (["--thread", "1"], "there is no flag --thread (did you mean --threads?)"),
    (["-threads", "1"], "there is no flag -threads (did you mean --threads?)"),
    (["--system", "x"], "there is no flag --system (did you mean --system-prompt?)"),
    (["--single"], "there is no flag --single (did you mean --single-turn?)"),
    (["--max-tokens", "1"], "there is no flag --max-tokens (did you mean --predict?)"),
    (["--format", "x"], "there is no flag --format"),
    (["--lorra", "x"], "there is no flag --lorra"),
    (["-t"], "-t needs a value: THREADS"),
    (["-t", "x"], "-t x: expected a whole number"),
    (["--threads="], "--threads '': expected a whole number"),
    (["--color=red"], "--color red: expected one of on, off"),
    (["-st=1"], "-st takes no value"),
])
def test_wrong_usage(
    parser: Parser, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, exit code 2."""
    with pytest.raises(SystemExit, match="2"):
        parser.parse(argv)
    assert capsys.readouterr() == ("", f"p: {message}; see p --help\n")


def test_errors_of_types_are_told_behind_flag_and_value(
    parser: Parser, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that ggpy raises, too."""
    def refuse(text: str) -> None:
        raise ConfigError("too warm")

    parser.add_argument("--temp", type=refuse)
    with pytest.raises(SystemExit):
        parser.parse(["--temp", "9"])
    assert capsys.readouterr().err == "p: --temp 9: too warm; see p --help\n"


def test_variables_are_the_values_of_flags_that_are_not_given(
    parser: Parser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the form of the flag."""
    parser.variables = {"--threads": "THREADS", "--single-turn": "SINGLE_TURN"}
    monkeypatch.setenv("LLAMA_ARG_THREADS", "5")
    monkeypatch.setenv("LLAMA_ARG_SINGLE_TURN", "1")
    assert (parser.parse([]).threads, parser.parse([]).single_turn) == (5, True)
    args = parser.parse(["-t", "6"])
    assert (args.threads, args.flags) == (6, {"threads": "-t"})


@pytest.mark.parametrize(("text", "expected"), [
    ("a b", "a b"), ("", "''"), ("a\nb", r"'a\nb'"), ("x" * (SHOWN + 1), "x" * SHOWN + "..."),
])
def test_values_in_messages_are_short_and_visible(text: str, expected: str) -> None:
    """On one line."""
    assert shown(text) == expected
