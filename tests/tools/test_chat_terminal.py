"""`ggpy run` on a real terminal."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ggpy import config

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals in the standard library", allow_module_level=True)

from tests.tools.pty_terminal import ROOT, Terminal

PASTE = "\x1b[200~{}\x1b[201~"
CTRL_C, CTRL_D, ALT_ENTER = "\x03", "\x04", "\x1b\r"
Open = Callable[..., Terminal]


@pytest.fixture
def chat(tmp_path: Path) -> Open:
    """Opens a conversation with an LLM that echoes, once its prompt is there."""
    def open_chat(*argv: str, prompt: str = ">>> ", columns: int = 80, **env: str) -> Terminal:
        terminal = Terminal("-m", "tests.tools.echo_llm", "m", *argv, env={"GGPY_HOME": str(tmp_path), **env},
                            columns=columns)
        terminal.expect(prompt)
        return terminal

    return open_chat


def test_an_answer_is_markdown_and_the_context_is_shown(chat: Open) -> None:
    """Below the prompt."""
    with chat() as terminal:
        terminal.expect("m  0 / 4,096 tokens (0%)")
        terminal.type("some **bold** words\r")
        terminal.expect("some bold words")
        terminal.expect("m  59 / 4,096 tokens (1%)  80.0 tokens/s")
        assert "\x1b[1mbold" in terminal.raw
        terminal.type("/bye\r")
        assert terminal.expect_exit() == 0


def test_commands(chat: Open, tmp_path: Path) -> None:
    """Each, with its effect."""
    saved = tmp_path / "chat.json"
    with chat() as terminal:
        for keys, shown in [
            ("one", "one"), ("/regen", "one"), ("/undo", "took back: one"), ("/undo", "nothing has been said yet"),
            ("/system Be brief", "the system prompt is set"), ("/show system", "Be brief"), ("two", "two"),
            ("/set temp=0.1", "temperature   0.1"), ("/set parameter top_k = 5", "top_k   5"),
            ("/set system foo", "/system TEXT sets the system prompt"), ("/show modelfile", "there is no Modelfile"),
            ("/set parameter", "there is no setting 'parameter'"), ("/show parameters", "min_p                   0.05"),
            ("/set markdown", "expected on or off; it is on"), ("/set stop =", "stop   '='"),
            (f"/save {saved}", "saved 2 messages"), ("/clear", "forgot the conversation; the system prompt stays"),
            (f"/load {saved}", "loaded 2 messages"), ("/load absent.json", "absent.json cannot be read: No such file"),
            ("/set temp 0.5", "temperature   0.5"), ("/set temp hot", "temperature=hot: expected a number"),
            ("/set tpo_k 1", "did you mean top_k?"), ("/set x 1", "/set lists them"), ("/set top_p 7", "top_p=7"),
            ("/show params", "min_p                   0.05"), ("/show template", "<|im_start|>"),
            ("/show", "echo.gguf"), ("/show all", "expected one of info, template, system, params"),
            ("/stats", "3 answers with 15 tokens"), ("/hlep", "there is no /hlep; did you mean /help?"),
            ("/", "there is no /; /help lists the commands"), ("/?", "end the conversation"),
            ("/xyzzy", "/help lists the commands"), ("/help", "Ctrl-C stops an answer"),
            ("/system", "no system prompt"),
        ]:
            terminal.type(keys + "\r")
            terminal.expect("\n")       # the end of what was typed
            terminal.expect(shown)
            terminal.expect("tokens (")         # the next prompt stands
        terminal.type("/exit\r")
        assert terminal.expect_exit() == 0


def test_ctrl_c_at_the_prompt(chat: Open) -> None:
    """It takes back what was typed; where there is nothing it says how to leave; Ctrl-D leaves."""
    with chat() as terminal:
        terminal.type("never sent" + CTRL_C + "sent\r")
        terminal.expect("\n")
        assert "never" not in terminal.expect("tokens/s")
        for _ in range(2):
            terminal.type(CTRL_C)
            terminal.expect("Ctrl-D or /bye leaves")
            terminal.expect(">>> ")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0


@pytest.mark.parametrize("question", ["wait", "some words wait"])
@pytest.mark.parametrize("n_times", [1, 2])
def test_ctrl_c_stops_an_answer(chat: Open, question: str, n_times: int) -> None:
    """While the prompt is read and while the answer is written; what is typed meanwhile is not shown.

    A hasty second one does not leave.
    """
    with chat() as terminal:
        terminal.type(question + "\r")
        terminal.expect("…" if question == "wait" else "\nsome")
        terminal.type("unseen\r" + CTRL_C * n_times)
        shown = terminal.expect("(stopped before an answer: the message is not kept; /regen asks it again)"
                                if question == "wait" else "(stopped)")
        assert "unseen" not in shown
        terminal.type("one\r")
        terminal.expect("…")
        assert "one\n" in terminal.expect("tokens/s")


def test_a_long_prompt_shows_how_far_it_is_read(chat: Open) -> None:
    """Until the answer begins."""
    with chat() as terminal:
        terminal.type("wait " + "x" * 600 + "\r")
        terminal.expect("… 312 of 624 tokens read")
        terminal.type(CTRL_C)
        terminal.expect("(stopped")


@pytest.mark.parametrize("mode", ["--simple-io", "TERM=dumb"])
def test_plain_terminals(chat: Open, mode: str) -> None:
    """No escape sequence is sent, Ctrl-C works the same, and a line goes on behind a backslash."""
    arguments, env = ([mode], {}) if mode[0] == "-" else ([], {"TERM": "dumb"})
    with chat(*arguments, **env) as terminal:
        terminal.type("some **bold** words\n")
        terminal.expect("some **bold** words \n")
        terminal.expect("[prompt ")
        terminal.expect(">>> ")
        terminal.type("half" + CTRL_C)
        terminal.expect("Ctrl-C takes back the line; Ctrl-D or /bye leaves")
        terminal.expect(">>> ")
        terminal.type("a wait\n")
        terminal.expect("\na ")
        terminal.type(CTRL_C)
        assert "cancelled" not in terminal.expect("(stopped)")
        assert "cancelled" not in terminal.expect(">>> ")
        terminal.type("one\\\ntwo\n")
        terminal.expect("... ")
        terminal.expect("one\ntwo\n")
        terminal.expect(">>> ")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0
        assert "\x1b" not in terminal.raw


COLOR = re.compile(r"\x1b\[(\d+;)*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]")


@pytest.mark.parametrize(("options", "env", "has_color"), [
    ([], {}, True), ([], {"NO_COLOR": "1"}, False), (["--color", "off"], {}, False),
    (["--color"], {"NO_COLOR": "1"}, True),
])
def test_colors(chat: Open, options: list[str], env: dict[str, str], has_color: bool) -> None:
    """Without them, all else is the same: editing, completion, the status and Markdown."""
    with chat(*options, **env) as terminal:
        terminal.expect("m  0 / 4,096 tokens (0%)")
        terminal.type("/reg")
        terminal.expect("answer the last message again")
        terminal.type("\t\r")
        terminal.expect("nothing has been said yet")
        terminal.expect("tokens (")
        terminal.type("```py" + ALT_ENTER + "x = 1" + ALT_ENTER + "```" + ALT_ENTER + "**bold**\r")
        terminal.expect("…")
        terminal.expect("\nbold\n")
        terminal.expect("tokens/s")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0
        assert (COLOR.search(terminal.raw) is not None) is has_color
        assert "\x1b[1mbold" in terminal.raw


def test_json_on_a_terminal_has_lines_to_itself(tmp_path: Path) -> None:
    """What is said around them goes to stderr."""
    with open(tmp_path / "said", "wb") as said, Terminal(
            "-m", "tests.tools.echo_llm", "m", "--json", env={"GGPY_HOME": str(tmp_path)}, stderr=said) as terminal:
        terminal.type("one\n")
        terminal.expect("}\n")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0
    typed, answer = terminal.text.splitlines()
    assert (typed, json.loads(answer)["text"]) == ("one", "one ")
    assert ">>> " in (tmp_path / "said").read_text(encoding="utf-8")


SHELL = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
job = subprocess.Popen([sys.executable, *sys.argv[1:]], process_group=0,
                       preexec_fn=lambda: os.tcsetpgrp(0, os.getpid()))
_, status = os.waitpid(job.pid, os.WUNTRACED)
os.tcsetpgrp(0, os.getpgrp())
print("suspended by", os.WSTOPSIG(status), flush=True)
os.tcsetpgrp(0, job.pid)
os.kill(job.pid, signal.SIGCONT)
sys.exit(job.wait())
"""


def test_ctrl_z_at_the_prompt_suspends(tmp_path: Path) -> None:
    """As in a shell; what was typed is there again afterwards."""
    with Terminal("-c", SHELL, "-m", "tests.tools.echo_llm", "m", env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect("tokens (0%)")
        terminal.type("half\x1a")
        terminal.expect(f"suspended by {int(signal.SIGTSTP)}")
        terminal.expect(">>> half")
        terminal.type("way\r")
        terminal.expect("…")
        terminal.expect("halfway")
        terminal.expect("tokens/s")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0


def test_markdown_can_be_switched_off(chat: Open) -> None:
    """Then an answer is the model's own text."""
    with chat() as terminal:
        terminal.type("/set markdown off\r")
        terminal.expect("markdown   off")
        terminal.type("some **bold** words\r")
        terminal.expect("words\n")
        terminal.expect("some **bold** words \n")
        terminal.type("/set markdown on\r")
        terminal.expect("markdown   on")
        terminal.type("**again**\r")
        terminal.expect("…")
        terminal.expect("again\n")
        assert "\x1b[1magain" in terminal.raw


def test_the_settings_that_matter_are_the_last_of_the_list(chat: Open) -> None:
    """They stay on the screen; above all those that the user has changed."""
    with chat() as terminal:
        terminal.type("/set mirostat 1\r")
        terminal.expect("mirostat   1")
        terminal.type("/set\r")
        terminal.expect("stop  ")
        shown = terminal.expect("tokens (")
        assert re.findall(r"^(\w+)   ", shown, re.MULTILINE) == [
            "ignore_eos", "repeat_penalty", "min_p", "top_p", "top_k", "temperature", "max_tokens", "seed", "mirostat"]


@pytest.mark.parametrize("keys", [
    PASTE.format("first\rsecond"), "first" + ALT_ENTER + "second", "first\\\rsecond", "'''first\rsecond'''",
])
def test_messages_of_several_lines(chat: Open, keys: str) -> None:
    """Pasted, by Alt-Enter, behind a backslash or between quotes: one question."""
    with chat() as terminal:
        terminal.type(keys + "\r")
        terminal.expect("…")
        assert "first\nsecond\n" in terminal.expect("tokens/s")
        terminal.type("/undo\r")
        terminal.expect("took back: first second")


def test_history_outlives_a_conversation(chat: Open, tmp_path: Path) -> None:
    """Only its user may read it."""
    for keys in ("remember me\r", "\x1b[A\r"):
        with chat() as terminal:
            terminal.type(keys)
            terminal.expect("tokens/s")
            assert terminal.text.count("remember me") > 1
            terminal.type(CTRL_D)
            terminal.expect_exit()
    assert (tmp_path / "state" / "chat_history").stat().st_mode & 0o777 == 0o600


def test_completion(chat: Open) -> None:
    """A tab fills in what is unique."""
    with chat() as terminal:
        terminal.type("/reg")
        terminal.expect("answer the last message again")
        terminal.type("\t\r")
        terminal.expect("nothing has been said yet")


def test_a_narrow_window(chat: Open) -> None:
    """Words stay whole, two columns stay two, and the context is what is shown of the status."""
    with chat(columns=30) as terminal:
        terminal.expect("m  0 / 4,096 tokens (0%)")
        terminal.type("/help\r")
        terminal.expect("/clear           forget the\n                 conversation\n")
        terminal.type("some words\r")
        terminal.expect("…")
        assert "tokens/s" not in terminal.expect(" / 4,096 tokens (1%)")


def test_lines_of_a_message_and_of_the_window_differ(chat: Open) -> None:
    """Only what the user has begun is marked; tabs are as wide as in code."""
    with chat(columns=30) as terminal:
        terminal.type("1234567 " * 4 + ALT_ENTER + PASTE.format("\tx"))
        terminal.expect("\n    ")
        terminal.expect("... ")
        terminal.expect("    x")
        assert "^I" not in terminal.text
        terminal.type("\r")
        terminal.expect("…")
        terminal.expect("tokens (")


def test_every_setting_is_checked(chat: Open) -> None:
    """A value that cannot work changes nothing and says what could."""
    from ggpy.tools import chat_settings

    with chat() as terminal:
        for name in chat_settings.names():
            if name not in ("stop", "dry_sequence_breakers"):       # any text will do
                terminal.type(f"/set {name} bad\r")
                terminal.expect("bad\n")
                terminal.expect("expected")
                terminal.expect("tokens (")
            terminal.type(f"/set {name}\r")
            terminal.expect(f"/set {name} needs a value; it is")
            terminal.expect("tokens (")


def test_a_window_may_change_its_size(chat: Open) -> None:
    """At the prompt and in the middle of an answer: what follows is as wide as the window."""
    words = "1234567 " * 12
    with chat(columns=100) as terminal:
        terminal.type("a wait\r")
        terminal.expect("\na")
        terminal.resize(40, 24)
        terminal.type(CTRL_C)
        terminal.expect("(stopped)")
        terminal.expect("tokens (")
        terminal.type(words + "\r")
        terminal.expect("…")
        terminal.expect("tokens (")
        answer = terminal.text[terminal.text.index("(stopped)") :]
        assert "\n" + ("1234567 " * 5).strip() + "\n" in answer
        terminal.resize(100, 24)
        terminal.type(words + "\r")
        terminal.expect("…")
        assert words.strip() + "\n" in terminal.expect("tokens (")


@pytest.mark.parametrize("options", [[], ["--simple-io"]])
@pytest.mark.parametrize("n_times", [1, 2])
def test_one_answer_on_a_terminal_ends_with_ctrl_c(tmp_path: Path, options: list[str], n_times: int) -> None:
    """What was said stays on the screen; the exit code is that of an interrupted program."""
    argv = ("-m", "tests.tools.echo_llm", "m", "some wait", *options)
    with Terminal(*argv, env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect("some")
        terminal.type(CTRL_C * n_times)
        assert terminal.expect_exit() == 130
        assert terminal.is_as_it_was()
        assert "some\n" in terminal.text.replace("some \n", "some\n")
        assert terminal.text.endswith("\nggpy: interrupted\n")


SLOW_START = """
import sys, time
from ggpy import cli
from ggpy.tools import loading

def forever(*args, progress, **options):
    if sys.argv[1] == "pull":
        with progress("pulling m", 10_000_000) as shown:
            shown.update(5_000_000)
            time.sleep(60)
    progress("kernel", 1, 9)
    time.sleep(60)

if sys.argv[1] == "pull":
    loading.resolve = forever
else:
    loading.resolve, loading.LLM = lambda spec, **options: spec, forever
sys.exit(cli.main(["run", "m"]))
"""


@pytest.mark.parametrize(("state", "shown"), [("pull", "5.0/10.0 MB"), ("load", "preparing kernels 1/9")])
@pytest.mark.parametrize("n_times", [1, 2])
def test_ctrl_c_before_the_prompt(tmp_path: Path, state: str, shown: str, n_times: int) -> None:
    """While a model is pulled, or loaded; keys do not tear the progress."""
    with Terminal("-c", SLOW_START, state, env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect(shown)
        terminal.type("unseen" + CTRL_C * n_times)
        assert terminal.expect_exit() == 130
        assert terminal.is_as_it_was(), terminal.raw
        assert terminal.text.endswith("\nggpy: interrupted\n")
        assert "unseen" not in terminal.text
        assert "^C" not in terminal.text


def test_ctrl_c_while_kernels_compile(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    """The compilers, which would hear of it only when they are done, are ended."""
    with Terminal("-m", "ggpy", "run", str(model_path("smollm2")), env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect("preparing kernels ")
        terminal.type(CTRL_C)
        assert terminal.expect_exit() == 130
        assert terminal.is_as_it_was()
        assert terminal.text.endswith("\nggpy: interrupted\n")


def test_a_real_model_on_a_terminal(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    """Two turns, Ctrl-C in a long prompt, leaving at once, and what the turns had in common."""
    (tmp_path / "kernels").symlink_to(config.kernels_dir())      # but the history is not the user's
    with Terminal("-m", "ggpy", "run", str(model_path("smollm2")), "-n", "8", "--temp", "0",
                  env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect("8,192 tokens (0%)")
        for question in ("Name a colour.", "Another."):
            terminal.type(question + "\r")
            terminal.expect("tokens/s")
        terminal.type(PASTE.format("word " * 3000) + "\r")
        terminal.expect("…")
        terminal.type(CTRL_C)
        terminal.expect("(stopped before an answer")
        terminal.type("/stats\r")
        terminal.expect("known from earlier turns")
        terminal.expect("tokens (")
        terminal.type(PASTE.format("word " * 3000) + "\r")
        terminal.expect("…")
        terminal.type(CTRL_C)
        terminal.expect("(stopped before an answer")
        terminal.expect("tokens (")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0
        assert terminal.is_as_it_was()


def test_a_conversation_through_pipes(tmp_path: Path) -> None:
    """Not a byte but the answers on stdout, Markdown as the model wrote it; the exit code of what failed."""
    def run(messages: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.tools.echo_llm", "m", "-cnv"], input=messages, capture_output=True, text=True,
            env={**os.environ, "GGPY_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}, cwd=ROOT, timeout=60)

    done = run("some **bold** words\n/clear\nagain\n")
    assert (done.returncode, done.stdout) == (0, "some **bold** words \nagain \n")
    assert "forgot the conversation\n" in done.stderr
    assert "\x1b" not in done.stderr
    failed = run("one\n/load absent\ntwo\n")
    assert (failed.returncode, failed.stdout) == (1, "one \n")
    assert failed.stderr.endswith("ggpy run: absent cannot be read: No such file or directory\n")
