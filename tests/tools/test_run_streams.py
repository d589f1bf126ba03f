"""`ggpy run` where stdin and stdout are not both a terminal."""

import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals in the standard library", allow_module_level=True)

from tests.tools.pty_terminal import ROOT, Terminal

REDIRECTED = """
import os, sys
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 1)
os.execv(sys.executable, [sys.executable, "-m", "tests.tools.echo_llm", "m"])
"""


def test_a_conversation_whose_output_is_redirected_writes_answers_alone(tmp_path: Path) -> None:
    """`ggpy run m > file` at a terminal: what is said to the person stays on the screen."""
    with Terminal("-c", REDIRECTED, str(tmp_path / "answers"), env={}) as terminal:
        for line in ("one", "/show n", "two", "/bye"):
            terminal.expect(">>> ")
            terminal.type(line + "\n")
        assert terminal.expect_exit() == 0
    assert (tmp_path / "answers").read_text() == "one \ntwo \n"


BACKGROUND = """
import os, signal, sys
job = os.fork()
if job == 0:
    os.setpgid(0, 0)
    os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 1)
    os.execv(sys.executable, [sys.executable, "-m", "tests.tools.echo_llm", "m", "Hello"])
_, status = os.waitpid(job, os.WUNTRACED)
if os.WIFSTOPPED(status):
    os.kill(job, signal.SIGKILL)
print("stopped" if os.WIFSTOPPED(status) else f"exit code {os.waitstatus_to_exitcode(status)}")
"""


def test_an_answer_comes_in_the_background(tmp_path: Path) -> None:
    """`ggpy run m Hello > file &` at a terminal, whose settings are not its to change: it would be stopped."""
    with Terminal("-c", BACKGROUND, str(tmp_path / "answer"), env={}) as terminal:
        assert terminal.expect_exit() == 0
    assert terminal.text.endswith("exit code 0\n")
    assert (tmp_path / "answer").read_text() == "Hello \n"


def test_a_pipe_that_stays_open_is_not_waited_for_in_silence() -> None:
    """As a parent such as cron may leave it; once it ends, the answer comes."""
    command = [sys.executable, "-m", "tests.tools.echo_llm", "m", "Hello"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == (
            b"ggpy: reading stdin, whose text is put behind the prompt, until it ends; without it: ggpy run ... < "
            b"/dev/null\n")
        process.stdin.close()
        assert process.stdout.read() == b"Hello \n"
