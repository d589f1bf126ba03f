"""llama-server's flags and variables, one by one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ggpy.gguf import GGUFFile
from ggpy.server.options.flag_values import server_settings, template_variables
from ggpy.server.options.flags import add_arguments
from ggpy.tools.llama_flags import _Unsupported
from ggpy.tools.parser import Parser

TABLE = Path(__file__).parents[1] / "data" / "server" / "llama_server_flags.txt"


class Row(NamedTuple):
    """One line of the table."""

    spellings: tuple[str, ...]
    value: str | None
    variable: str | None
    is_idle: bool


def read_table() -> list[Row]:
    rows = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            cells = [cell.strip() for cell in line.split(" | ")]
            spellings, value, variable, *rest = cells
            rows.append(Row(tuple(spellings.split()), None if value == "-" else value,
                            None if variable == "-" else f"LLAMA_ARG_{variable}", bool(rest)))
    return rows


ROWS = read_table()


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What FILE and FOLDER in the table stand for."""
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("text")
    Path("FOLDER").mkdir()


def arguments(*argv: str) -> dict[str, Any]:
    """What the flags mean to the command, but for how they were spelled."""
    parser = Parser(prog="ggpy serve")
    add_arguments(parser)
    return {name: value for name, value in vars(parser.parse(argv)).items() if name not in ("fail", "flags", "argv")}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.spellings[0])
def test_a_flag_is_taken_however_it_is_spelled(row: Row) -> None:
    """Each spelling means the same, and something, unless the table says that nothing is to be done."""
    usual = arguments()
    meant = [arguments(spelling, *filter(None, [row.value])) for spelling in row.spellings]
    assert all(each == meant[0] for each in meant)
    usual["has_agent_flags"] = meant[0]["has_agent_flags"]
    assert (meant[0] == usual) is row.is_idle


@pytest.mark.parametrize("row", [row for row in ROWS if row.variable], ids=lambda row: row.spellings[0])
def test_a_variable_is_as_good_as_its_flag(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the command line goes before it."""
    assert row.variable is not None
    meant = arguments(row.spellings[0], *filter(None, [row.value]))
    monkeypatch.setenv(row.variable, "1" if row.value is None else row.value)
    assert arguments() == meant
    assert arguments(row.spellings[0], *filter(None, [row.value])) == meant


@pytest.mark.parametrize(("text", "is_on"), [("1", True), ("on", True), ("enabled", True), ("0", False)])
def test_variables_of_switches_say_yes_or_no(monkeypatch: pytest.MonkeyPatch, text: str, is_on: bool) -> None:
    """The spellings are llama.cpp's."""
    monkeypatch.setenv("LLAMA_ARG_ENDPOINT_METRICS", text)
    assert arguments()["metrics"] is is_on


def test_no_flag_of_the_table_is_refused() -> None:
    """Whatever its value."""
    parser = Parser(prog="ggpy serve")
    add_arguments(parser)
    actions = [parser._option_string_actions[spelling] for row in ROWS for spelling in row.spellings]
    assert not [action.option_strings for action in actions if isinstance(action, _Unsupported)]


def settings(*argv: str) -> Any:
    parser = Parser(prog="ggpy serve")
    add_arguments(parser)
    return server_settings(parser.parse(argv))


def test_agents_flags_restrict_origins() -> None:
    """As in llama-server; what was chosen goes before that."""
    assert settings().cors_origins == "*"
    assert settings("--tools", "all").cors_origins == "localhost"
    assert settings("--ollama").cors_origins == "localhost"
    assert settings("--ollama", "--cors-origins", "*").cors_origins == "*"
    assert settings("--ui-mcp-proxy", "--cors-origins", "https://a.example").cors_origins == "https://a.example"


def test_templates_hear_of_effort_and_of_thoughts_that_stay() -> None:
    """Under each of the names that templates have for it; --chat-template-kwargs goes before."""
    parser = Parser(prog="ggpy serve")
    add_arguments(parser)
    assert template_variables(parser.parse(["--reasoning-effort", "high"])) == {
        "preserve_thinking": True, "clear_thinking": False, "truncate_history_thinking": False, "drop_thinking": False,
        "reasoning_effort": "high"}
    args = parser.parse(["--no-reasoning-preserve", "--chat-template-kwargs", '{"clear_thinking": false, "x": 1}'])
    assert template_variables(args) == {"preserve_thinking": False, "clear_thinking": False,
                                        "truncate_history_thinking": True, "drop_thinking": True, "x": 1}


def test_escapes_in_stop_strings_can_be_left_as_they_are(tiny_model: Path) -> None:
    """By --no-escape."""
    metadata = GGUFFile(tiny_model).metadata
    assert settings("-r", r"a\n").sampling_of(metadata).stop == ("a\n",)
    assert settings("-r", r"a\n", "--no-escape").sampling_of(metadata).stop == (r"a\n",)


def test_a_port_is_ollamas_only_without_another() -> None:
    """--ollama alone moves the server there."""
    assert [settings(*argv).port for argv in ([], ["--ollama"], ["--ollama", "--port", "7"])] == [8080, 11434, 7]
