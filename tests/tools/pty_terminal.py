"""A pseudo-terminal with a program on it: what is typed goes in, what it shows can be waited for."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

ROOT = Path(__file__).parents[2]
ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|\][^\x07]*\x07|[()][A-Z0-9]|[=>78])")
# its Ctrl-C then interrupts the program, also if the tests run in the background, where a shell has it ignored
TAKE_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGINT, signal.SIG_DFL)
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
CURSOR_QUESTION = b"\x1b[6n"     # where the cursor is; in the first line, for all that this terminal knows
PATIENCE_S = 60         # a failing test waits so long, a passing one does not


class Terminal:
    """Runs Python with `argv` on a terminal of its own; its stderr may go elsewhere."""

    def __init__(self, *argv: str, env: Mapping[str, str], columns: int = 80, rows: int = 24,
                 stderr: IO[bytes] | None = None) -> None:
        self._fd, slave = pty.openpty()
        self._resize(columns, rows)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("NO_COLOR", "LLAMA_ARG_"))}
        clean |= {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **env}
        self.process = subprocess.Popen([sys.executable, "-c", TAKE_TERMINAL, *argv], stdin=slave, stdout=slave,
                                        stderr=stderr or slave, cwd=ROOT, env=clean, start_new_session=True)
        os.close(slave)
        self.raw = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen = 0      # characters of `text` that were waited for

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._fd)

    @property
    def text(self) -> str:
        """All that was shown, without escape sequences."""
        return ESCAPE.sub("", self.raw).replace("\r", "")

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def expect(self, text: str) -> str:
        """Wait until `text` is shown behind what was waited for so far; returns what stood before it."""
        deadline = time.monotonic() + PATIENCE_S
        while (start := self.text.find(text, self._seen)) < 0:
            assert self._read(deadline - time.monotonic()), f"{text!r} is not in {self.text[self._seen:]!r}"
        before = self.text[self._seen : start]
        self._seen = start + len(text)
        return before

    def expect_exit(self) -> int:
        """Wait for the program's end; returns its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(deadline - time.monotonic()):
            pass
        return self.process.wait(max(1, deadline - time.monotonic()))

    def is_as_it_was(self) -> bool:
        """Whether the program has left the terminal fit for a shell: keys are shown and the cursor is, too."""
        flags = termios.tcgetattr(self._fd)[3]
        keys = termios.ECHO | termios.ICANON | termios.ISIG
        return flags & keys == keys and self.raw.rfind("\x1b[?25l") <= self.raw.rfind("\x1b[?25h")

    def resize(self, columns: int, rows: int) -> None:
        self._resize(columns, rows)
        os.kill(self.process.pid, signal.SIGWINCH)

    def _resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self, timeout_s: float) -> bool:
        """Take what is shown next; False at the end or when nothing comes."""
        if not select.select([self._fd], [], [], max(0, timeout_s))[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:         # how Linux tells that the other side is closed
            return False
        self.raw += self._decoder.decode(data)
        for _ in range(data.count(CURSOR_QUESTION)):
            os.write(self._fd, b"\x1b[1;1R")
        return bool(data)
