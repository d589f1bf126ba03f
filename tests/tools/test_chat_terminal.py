"""`ggpy run` on a real terminal."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ggpy import config

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals in the standard library", allow_module_level=True)

from tests.tools.pty_terminal import Terminal

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
            (f"/save {saved}", "saved 2 messages"), ("/clear", "forgot the conversation; the system prompt stays"),
            (f"/load {saved}", "loaded 2 messages"), ("/load absent.json", "absent.json cannot be read: No such file"),
            ("/set temp 0.5", "temperature            0.5"), ("/set temp hot", "temperature=hot: expected N"),
            ("/set tpo_k 1", "did you mean top_k?"), ("/set x 1", "/set lists them"), ("/set top_p 7", "top_p=7"),
            ("/show params", "min_p                  0.05"), ("/show template", "<|im_start|>"),
            ("/show", "echo.gguf"), ("/show all", "expected one of info, template, system, params"),
            ("/stats", "answers        3 with"), ("/hlep", "there is no /hlep; did you mean /help?"),
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
def test_ctrl_c_stops_an_answer(chat: Open, question: str) -> None:
    """While the prompt is read and while the answer is written; what is typed meanwhile is not shown."""
    with chat() as terminal:
        terminal.type(question + "\r")
        terminal.expect("…" if question == "wait" else "…some")
        terminal.type("unseen\r" + CTRL_C)
        shown = terminal.expect("(stopped)")
        assert "unseen" not in shown
        terminal.type("one\r")
        terminal.expect("…")
        assert "one\n" in terminal.expect("tokens/s")


@pytest.mark.parametrize("mode", ["--simple-io", "TERM=dumb"])
def test_plain_terminals(chat: Open, mode: str) -> None:
    """No escape sequence is sent, Ctrl-C works the same, and a line goes on behind a backslash."""
    arguments, env = ([mode], {}) if mode[0] == "-" else ([], {"TERM": "dumb"})
    with chat(*arguments, **env) as terminal:
        terminal.type("some **bold** words\n")
        terminal.expect("some **bold** words \n")
        terminal.expect("[prompt ")
        terminal.expect(">>> ")
        terminal.type(CTRL_C)
        terminal.expect("Ctrl-D or /bye leaves")
        terminal.expect(">>> ")
        terminal.type("a wait\n")
        terminal.expect("\na ")
        terminal.type(CTRL_C)
        terminal.expect("(stopped)")
        terminal.expect(">>> ")
        terminal.type("one\\\ntwo\n")
        terminal.expect("... ")
        terminal.expect("one\ntwo\n")
        terminal.expect(">>> ")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0
        assert "\x1b" not in terminal.raw


def test_no_color(chat: Open) -> None:
    """The model's text as it is, unless --color asks for more."""
    with chat(NO_COLOR="1") as terminal:
        terminal.type("some **bold** words\n")
        terminal.expect("some **bold** words \n")
        assert "\x1b" not in terminal.raw
    with chat("--color", NO_COLOR="1") as terminal:
        terminal.type("some **bold** words\r")
        terminal.expect("some bold words")


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


def test_a_window_may_change_its_size(chat: Open) -> None:
    """At the prompt and in the middle of an answer: what follows is as wide as the window."""
    words = "1234567 " * 12
    with chat(columns=100) as terminal:
        terminal.type("a wait\r")
        terminal.expect("…a")
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


def test_one_answer_on_a_terminal_ends_with_ctrl_c(tmp_path: Path) -> None:
    """What was said stays on the screen; the exit code is that of an interrupted program."""
    with Terminal("-m", "tests.tools.echo_llm", "m", "some wait", env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect("some")
        terminal.type(CTRL_C)
        assert terminal.expect_exit() == 130
        assert "some\n" in terminal.text
        assert terminal.text.endswith("ggpy: interrupted\n")


def test_a_real_model_on_a_terminal(model_path: Callable[[str], Path], tmp_path: Path) -> None:
    """Two turns, a Ctrl-C in a long prompt, and what the turns had in common."""
    (tmp_path / "kernels").symlink_to(config.kernels_dir())      # but the history is not the user's
    with Terminal("-m", "ggpy", "run", str(model_path("smollm2")), "-n", "8", "--temp", "0",
                  env={"GGPY_HOME": str(tmp_path)}) as terminal:
        terminal.expect("4,096 tokens (0%)")
        for question in ("Name a colour.", "Another."):
            terminal.type(question + "\r")
            terminal.expect("tokens/s")
        terminal.type(PASTE.format("word " * 3000) + "\r")
        terminal.expect("…")
        terminal.type(CTRL_C)
        terminal.expect("(stopped)")
        terminal.type("/stats\r")
        terminal.expect("known from earlier turns")
        terminal.expect("tokens (")
        terminal.type(CTRL_D)
        assert terminal.expect_exit() == 0
