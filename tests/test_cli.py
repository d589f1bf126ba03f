"""The `ggpy` command: how it finds, starts and ends its sub-commands."""

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from ggpy import cli
from ggpy.errors import ConfigError

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
    """`ggpy --help` is instant: neither NumPy nor any command's module is loaded for it."""
    code = (
        "import sys; from ggpy.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted(m for m in sys.modules if m == 'numpy' or m == 'rich' or m.startswith('ggpy.tools')))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert all(f"    {name} " in output for name in cli.COMMANDS)
    assert output.splitlines()[-1] == "[]"


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
    (["pul", "smollm2"], "there is no command 'pul'; did you mean `ggpy pull`?"),
    (["zzz"], "there is no command 'zzz'; `ggpy --help` lists them"),
    (["list", "--no-such-flag"], "unrecognized arguments: --no-such-flag"),
    (["list", "--path"], "unrecognized arguments: --path"),     # flags are never abbreviated
    (["rm"], "the following arguments are required"),
])
def test_wrong_usage_exits_with_2(argv: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message says what is wrong; nothing is run."""
    with pytest.raises(SystemExit) as stop:
        cli.main(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


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
    add_command(raising(ConfigError("n_ctx=0: one token at least")))
    assert cli.main(["probe"]) == 1
    assert capsys.readouterr().err == "ggpy: error: n_ctx=0: one token at least\n"


def test_verbose_shows_where_an_error_came_from(
    add_command: AddCommand, capsys: pytest.CaptureFixture[str]
) -> None:
    """With -v the traceback stands above the line."""
    add_command(raising(ConfigError("n_ctx=0: one token at least")))
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
    assert result.stderr == "ggpy: error: stdout is closed; send it to a file or a program, or to /dev/null\n"


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
