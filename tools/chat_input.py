"""What a person types: lines, blocks of lines and commands, with editing and history where the terminal has them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.processors import TabsProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from ggpy import config

Completions = Callable[[str], Iterator[tuple[str, str]]]     # of a line: what its last word may become, and its meaning

PROMPT, CONTINUATION = ">>> ", "... "      # of a message; of its other lines
QUOTES = ("'''", '"""')
STYLE = Style.from_dict({"prompt": "ansigreen bold", "continuation": "ansibrightblack",
                         "bottom-toolbar": "noreverse ansibrightblack"})


class Input(Protocol):
    """Where messages come from."""

    def read(self) -> str:
        """The next message. Raises EOFError at the end, KeyboardInterrupt for Ctrl-C where nothing was typed."""
        ...


def is_complete(text: str) -> bool:
    """Whether Enter ends this message: not within ''' or \""", nor behind a backslash."""
    start = text.lstrip()
    return not text.endswith("\\") and not any(start.startswith(q) and q not in start[3:] for q in QUOTES)


def unquote(text: str) -> str:
    """A message without the ''' or \""" around it."""
    start = text.strip()
    for quote in QUOTES:
        if start.startswith(quote) and quote in start[3:]:
            body, _, rest = start[3:].partition(quote)
            return (body + rest).strip("\n")
    return start


def closed(text: str) -> str:
    """A message that is not complete with the quotes that it lacks."""
    start = text.lstrip()
    return text + next((q for q in QUOTES if start.startswith(q) and q not in start[3:]), "")


class LineInput:
    """Messages from a terminal without editing, or from a pipe."""

    def __init__(self) -> None:
        self.shows_prompt = sys.stdin.isatty()

    def read(self) -> str:
        text = self._line(PROMPT)
        while not is_complete(text):
            text = text.removesuffix("\\")
            try:
                text += "\n" + self._line(CONTINUATION)
            except EOFError:
                if self.shows_prompt:       # Ctrl-D leaves
                    raise
                return unquote(closed(text))
        return unquote(text)

    def _line(self, prompt: str) -> str:
        if self.shows_prompt:
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:
            if self.shows_prompt:
                print(file=sys.stderr)
            raise EOFError
        return line.removesuffix("\n")


class EditedInput:
    """Messages from a terminal, edited with prompt_toolkit.

    `completions` gives what may stand in place of the last word of a command, with an explanation; `status` is shown
    below the prompt and told how many columns it has. Ctrl-Z suspends the program.
    """

    def __init__(self, completions: Completions, status: Callable[[int], str], has_color: bool) -> None:
        self._session: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)], multiline=True, key_bindings=_bindings(), history=_history(),
            prompt_continuation=_continuation, completer=_Completer(completions), style=STYLE,
            bottom_toolbar=lambda: [("class:bottom-toolbar", status(get_app().output.get_size().columns))],
            reserve_space_for_menu=4, input_processors=[TabsProcessor(char1=" ", char2=" ")], enable_suspend=True,
            color_depth=ColorDepth.DEPTH_4_BIT if has_color else ColorDepth.DEPTH_1_BIT)

    def read(self) -> str:
        return unquote(self._session.prompt())


def _continuation(width: int, line_number: int, n_wraps: int) -> StyleAndTextTuples:
    """What stands in front of a line; nothing where the window, and not the user, has begun it."""
    return [("class:continuation", " " * width if n_wraps else CONTINUATION)]


class _Completer(Completer):
    """Completes the last word of a command."""

    def __init__(self, completions: Completions) -> None:
        self._completions = completions

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        line = document.text_before_cursor
        if line.startswith("/") and "\n" not in line:
            for word, meaning in self._completions(line):
                yield Completion(word, -len(line.rpartition(" ")[2]), display_meta=meaning)


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
            buffer.insert_text("\n")

    @bindings.add("escape", "enter")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @bindings.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt)

    return bindings


def _history() -> History:
    """The lines of earlier conversations, readable by their user alone; those of this one where that cannot be."""
    path = config.state_dir() / "chat_history"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(os.fspath(path))
