"""`ggpy top` on a terminal."""

import sys

import pytest

if sys.platform == "win32":
    pytest.skip("needs a pseudo-terminal", allow_module_level=True)

from tests.tools.metric_pages import LLAMA_SERVER, Server
from tests.tools.pty_terminal import Terminal


def top(*argv: str) -> Terminal:
    return Terminal("-m", "ggpy", "top", *argv, env={})


@pytest.mark.parametrize("keys", ["q", "xyQ", "\x03"], ids=["q", "behind other keys", "Ctrl-C"])
def test_q_and_ctrl_c_leave_the_terminal_as_it_was(keys: str) -> None:
    with Server(LLAMA_SERVER) as server, top(server.url, "--interval", "0.2") as terminal:
        terminal.expect("2 running · 1 waiting")
        terminal.type(keys)
        assert terminal.expect_exit() == 0
        assert terminal.is_as_it_was()
        assert terminal.raw.rfind("\x1b[?1049l") > terminal.raw.rfind("\x1b[?1049h")
        assert "interrupted" not in terminal.text


def test_a_server_that_goes_away_is_waited_for() -> None:
    """What was seen last stays on the screen, until another one listens there."""
    with Server(LLAMA_SERVER) as server:
        terminal = top(server.url, "--interval", "0.2")
        terminal.expect("2 running")
    with terminal:
        terminal.expect("waiting for")
        terminal.expect("nobody listens there")
        terminal.expect("2 running")
        with Server(LLAMA_SERVER.replace("requests_processing 2", "requests_processing 7"), port=server.port):
            terminal.expect("7 running")
        terminal.type("q")
        assert terminal.expect_exit() == 0


def test_a_server_that_was_never_there_is_an_error() -> None:
    """Most probably the URL is wrong."""
    with Server("") as server:
        pass
    with top(server.url) as terminal:
        terminal.expect("nobody listens there")
        assert terminal.expect_exit() == 1
        assert "\x1b[?1049h" not in terminal.raw
