"""The `ggpy` command: how it finds, starts and ends its sub-commands."""

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from ggpy import cli, config
from ggpy.errors import ConfigError, GGUFError

AddCommand = Callable[[Callable[[], int]], None]


@pytest.fixture
def add_command(monkeypatch: pytest.MonkeyPatch) -> AddCommand:
    """Registers a sub-command `probe` that runs the given function."""
    def add(body: Callable[[], int]) -> None:
        module = ModuleType("probe_module")
        module.add_arguments = lambda parser: None     # type: ignore[attr-defined]
        module.main = lambda args: body()              # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "probe_module", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", cli.Command("probe_module", "a command of this test"))

    return add


def raising(error: BaseException) -> Callable[[], int]:
    def body() -> int:
        raise error

    return body


def test_help_lists_every_command_and_imports_none() -> None:
    """`ggpy --help` is instant: neither NumPy nor any command's module is loaded for it, only the parser."""
    code = (
        "import sys; from ggpy.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m in ('numpy', 'rich') or m.startswith('ggpy.tools.')))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(f"    {name} " in output for name in cli.COMMANDS)
    assert output.splitlines()[-1] == "['ggpy.tools.parser']"


def test_python_m_ggpy_is_the_command() -> None:
    """`python -m ggpy` works where the script is not on the path."""
    result = subprocess.run([sys.executable, "-m", "ggpy", "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("ggpy ")


def test_a_command_that_is_missing_does_not_break_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Help still works, and choosing the missing command is one line and exit code 1."""
    monkeypatch.setitem(cli.COMMANDS, "probe", cli.Command("ggpy.tools.no_such_module", "absent"))
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    capsys.readouterr()
    assert cli.main(["probe"]) == 1
    assert "ggpy.tools.no_such_module is missing" in capsys.readouterr().err


@pytest.mark.parametrize(("argv", "message"), [
    (["pul", "smollm2"], "ggpy: there is no command 'pul' (did you mean `ggpy pull`?); see ggpy --help"),
    (["smollm2"], "ggpy: there is no command 'smollm2' (did you mean `ggpy run smollm2`?); see ggpy --help"),
    (["zzz"], "ggpy: there is no command 'zzz'; see ggpy --help"),
    (["ls"], "ggpy: there is no command 'ls' (did you mean `ggpy list`?); see ggpy --help"),
    (["server"], "ggpy: there is no command 'server' (did you mean `ggpy serve`?); see ggpy --help"),
    (["serve", "a", "-m", "b"], "ggpy serve: there are two models, a and b; give one; see ggpy serve --help"),
    (["-m", "x.gguf"], "ggpy: there is no flag -m; see ggpy --help"),
    (["list", "--path"], "ggpy list: there is no flag --path (did you mean --paths?); see ggpy list --help"),
    (["list", "all"], "ggpy list: all is one word too many; see ggpy list --help"),
    (["rm"], "ggpy rm: the following arguments are required: NAME; see ggpy rm --help"),
    (["pull"], "ggpy pull: there is no NAME; `ggpy list` shows the models that have one; see ggpy pull --help"),
    (["show", "m", "--json", "--template"],
     "ggpy show: --json and --template exclude each other; see ggpy show --help"),
    (["warm", "m", "-t", "0"], "ggpy warm: -t 0: expected a whole number from 1 to 512, or -1; see ggpy warm --help"),
    (["doctor", "--json=1"], "ggpy doctor: --json takes no value; see ggpy doctor --help"),
])
def test_wrong_usage_is_one_line_and_exits_with_2(
    argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says what is wrong and where to read more; nothing is run."""
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", message + "\n")


@pytest.mark.parametrize("argv", [["help", "list"], ["list", "--help"], ["list", "-h"], ["list", "--usage"]])
def test_help_of_a_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout, however it is asked for."""
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("usage: ggpy list [FLAGS]\n\nList the models")


def test_help_without_a_command_is_that_of_ggpy(capsys: pytest.CaptureFixture[str]) -> None:
    """`ggpy help` was asked for, unlike that of `ggpy` alone."""
    with pytest.raises(SystemExit) as stop:
        cli.main(["help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "commands, each with a --help of its own:" in shown
    assert "GGPY_HOME" in shown
    assert not any(name in shown for name in config.RARE)


@pytest.mark.parametrize("command", [None, *cli.COMMANDS])
def test_help_fits_a_terminal(
    command: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No line is longer than 80 columns, but for a word that is."""
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"] if command else ["--help"])
    assert [line for line in capsys.readouterr().out.splitlines() if len(line) > 80] == []


def test_no_command_prints_the_help_and_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    """Help that nobody asked for goes to stderr."""
    assert cli.main([]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "chat with a model" in output.err


def test_the_exit_code_is_the_commands(add_command: AddCommand) -> None:
    """What a command's main returns is what the process ends with."""
    add_command(lambda: 7)
    assert cli.main(["probe"]) == 7


def test_an_error_is_one_line(add_command: AddCommand, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors that ggpy raises on purpose need no traceback."""
    add_command(raising(GGUFError("m.gguf: too short")))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "ggpy probe: m.gguf: too short\n"


def test_an_error_of_a_file_names_it(add_command: AddCommand, capsys: pytest.CaptureFixture[str]) -> None:
    """In words, without the number of the error."""
    add_command(raising(FileNotFoundError(2, "No such file or directory", "no/where")))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "ggpy probe: no/where: No such file or directory\n"


def test_a_setting_that_cannot_work_is_wrong_usage(
    add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such as a variable's; the exit code says that trying again is no use."""
    add_command(raising(ConfigError("GGPY_CPU=z80: unknown")))
    assert cli.main(["probe"]) == 2
    assert capsys.readouterr().err == "ggpy probe: GGPY_CPU=z80: unknown\n"


def test_verbose_shows_where_an_error_came_from(
    add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """With -v the traceback stands above the line."""
    add_command(raising(GGUFError("m.gguf: too short")))
    assert cli.main(["probe", "-v"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_a_bug_is_not_hidden(add_command: AddCommand) -> None:
    """An error that nobody meant to raise keeps its traceback."""
    add_command(raising(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_ctrl_c_exits_with_130(add_command: AddCommand) -> None:
    """As shells expect of an interrupted program."""
    add_command(raising(KeyboardInterrupt()))
    assert cli.main(["probe"]) == 130


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    """`ggpy list | head -0` prints no error."""
    command = [sys.executable, "-m", "ggpy", "list"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.skipif(sys.platform == "win32", reason="a process is started with all three streams there")
def test_a_closed_stdout_is_one_line() -> None:
    """`ggpy list >&-`: Python has None for the stream then."""
    result = without_streams("list", 1)
    assert result.returncode == 1
    assert result.stderr == "ggpy: stdout is closed; send it to a file or a program, or to /dev/null\n"


@pytest.mark.skipif(sys.platform == "win32", reason="a process is started with all three streams there")
def test_closed_stdin_and_stderr_are_like_the_null_device() -> None:
    """Nothing is piped in, and what would be said is lost."""
    result = without_streams("list", 0, 2)
    assert result.returncode == 0
    assert "smollm2:135m" in result.stdout


def without_streams(command: str, *descriptors: int) -> subprocess.CompletedProcess[str]:
    """`ggpy command`, started with some of its standard streams closed."""
    closes = " ".join(f"{descriptor}>&-" for descriptor in descriptors)
    return subprocess.run(["sh", "-c", f'exec "$0" -m ggpy {command} {closes}', sys.executable], capture_output=True,
                          text=True, check=False)
