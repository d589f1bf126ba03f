"""Answers on stdout as they come: Markdown on a terminal, the model's own text anywhere else."""

from __future__ import annotations

import itertools
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

# what a model may not send to a terminal, where it could move the cursor or worse
CONTROLS = dict.fromkeys([*(i for i in range(32) if chr(i) not in "\n\t"), *range(127, 160)], "\ufffd")
# as text, HTML stays visible: a model's <think> or List<int> is no markup
PARSER = MarkdownIt("commonmark", {"html": False}).enable("strikethrough").enable("table")
MATHS = ("\\(", "\\)", "\\[", "\\]")     # what LaTeX is written between, and models mean by it
FENCE = re.compile(r"\n* {0,3}(`{3,}[^`\n]*|~{3,}[^\n]*)\n")        # how a code block begins
DRAWING_SHARE = 4       # waiting for this many times as long as a drawing took bounds its share of the time,
LONGEST_WAIT_S = 0.1    # but what is there is shown soon, unless that would take half of the time


class PlainOutput:
    """The model's own text, without control characters if a terminal would obey them."""

    def show(self, pieces: Iterable[str]) -> None:
        is_terminal = sys.stdout.isatty()
        for piece in pieces:
            sys.stdout.write(piece.translate(CONTROLS) if is_terminal else piece)
            sys.stdout.flush()
        sys.stdout.write("\n")
        sys.stdout.flush()


def rich_console(has_color: bool) -> Console:
    """Stdout, for text that is formatted; without colours, other ways to stress a word remain."""
    return Console(highlight=False, markup=False, emoji=False, no_color=not has_color)


class MarkdownOutput:
    """Prints each block of a Markdown text once it is complete, and redraws only the one that is still growing."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def show(self, pieces: Iterable[str]) -> None:
        text = _GrowingText(self.console)
        with Live(Text(""), console=self.console, auto_refresh=False, transient=True,
                  vertical_overflow="visible") as live:
            try:
                for piece in pieces:
                    text.push(piece.translate(CONTROLS), live)
            finally:
                text.finish(live)


def after_waiting(pieces: Iterable[str], progress: Callable[[], str], console: Console) -> Iterable[str]:
    """Wait for the first of the pieces, with three dots and what `progress` says on the screen; returns all pieces."""
    rest = iter(pieces)
    waiting = Live(get_renderable=lambda: Text(f"…{progress()}", "dim"), console=console, transient=True)
    try:
        waiting.start(refresh=True)
        first = next(rest, "")
    finally:
        waiting.stop()
    return itertools.chain([first], rest)


class _GrowingText:
    """The text of one answer: what is printed for good, and `rest`, which may still change."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.rest = ""
        self.is_first = True
        self._drawn_s = 0.0
        self._cost_s = 0.0

    def push(self, piece: str, live: Live) -> None:
        self.rest += piece
        now = time.monotonic()
        if now - self._drawn_s < min(DRAWING_SHARE * self._cost_s, max(self._cost_s, LONGEST_WAIT_S)):
            return
        done, self.rest = split_blocks(self.rest)
        with self.console:      # one write for all, so that nothing flickers
            if done:
                self._print(done, live)
            live.update(_Tail(self.rest, self.is_first), refresh=True)
        self._drawn_s = time.monotonic()
        self._cost_s = self._drawn_s - now

    def finish(self, live: Live) -> None:
        with self.console:
            self._print([self.rest], live)

    def _print(self, blocks: Iterable[str], live: Live) -> None:
        """Print blocks for good, in place of what was drawn."""
        live.update(Text(""), refresh=True)
        for block in blocks:
            lines = block_lines(self.console, self.console.options, block, self.is_first)
            if lines:
                self.console.print(_Lines(lines), end="")
                self.is_first = False


class _Lines:
    """Rendered lines, as something to print."""

    def __init__(self, lines: list[list[Segment]]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            yield from line
            yield Segment.line()


class _Tail:
    """The end of the growing block, as much as the screen can redraw."""

    def __init__(self, source: str, is_first: bool) -> None:
        self.source = source
        self.is_first = is_first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        n_lines = max(1, console.height - 2)
        lines = block_lines(console, options, end_of_code(self.source, n_lines), self.is_first)
        yield from _Lines(lines[-n_lines:]).__rich_console__(console, options)


def is_open_code(text: str) -> bool:
    """Whether `text` begins with a code block that no complete line of it ends."""
    opening = FENCE.match(text)
    if opening is None:
        return False
    fence = opening[1].strip()
    mark, n = fence[0], len(fence) - len(fence.lstrip(fence[0]))
    return re.compile(rf"^ {{0,3}}{mark}{{{n},}}[ \t]*\n", re.MULTILINE).search(text, opening.end()) is None


def end_of_code(text: str, n_lines: int) -> str:
    """`text`, or if it begins with an open code block of more lines than `n_lines`, how it opens and the last ones:
    to colour all of it for each new line would take longer the longer it gets."""
    if not is_open_code(text):
        return text
    lines = text.lstrip("\n").split("\n")
    return "\n".join([lines[0], *lines[1:][-n_lines - 1 :]])     # the last one may be empty


def split_blocks(text: str) -> tuple[list[str], str]:
    """The blocks of a Markdown text that cannot change any more, and the rest.

    The last block that has a complete line may go on in the next one; a line that is not complete says nothing yet.
    """
    if is_open_code(text):
        return [], text
    lines = text.split("\n")
    starts = [token.map[0] for token in PARSER.parse("\n".join(lines[:-1]) + "\n")
              if token.level == 0 and token.map is not None and token.nesting >= 0]
    if len(starts) < 2:
        return [], text
    blocks = ["\n".join(lines[start:end]) for start, end in itertools.pairwise(starts)]
    return blocks, "\n".join(lines[starts[-1] :])


def block_lines(console: Console, options: ConsoleOptions, source: str, is_first: bool) -> list[list[Segment]]:
    """The rendered lines of a Markdown text without blank ones around them; one in front unless it comes first."""
    lines = [_trimmed(line) for line in console.render_lines(ChatMarkdown(source), options, pad=False)]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    return lines if is_first or not lines else [[], *lines]


def _trimmed(line: list[Segment]) -> list[Segment]:
    """A line without the blanks at its end, which would wrap in a window that gets narrower."""
    line = [*line]
    while line:
        last = line.pop()
        if text := last.text.rstrip():
            return [*line, Segment(text, last.style)]
    return line


class _Heading(Heading):
    """At the left, as the rest is."""

    LEVEL_ALIGN: ClassVar = {}


class _CodeBlock(CodeBlock):
    """In the terminal's own colours, and at the left, so that what is copied is the code."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Syntax(str(self.text).rstrip(), self.lexer_name, theme="ansi_dark", background_color="default",
                     word_wrap=True)


class _Table(TableElement):
    """In a narrow window it breaks words rather than losing their ends."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for part in super().__rich_console__(console, options):
            for column in part.columns if isinstance(part, Table) else ():
                column.overflow = "fold"
            yield part


class ChatMarkdown(Markdown):
    """Markdown as models mean it: a line ends where the text says so, and HTML is text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _Heading, "fence": _CodeBlock, "code_block": _CodeBlock,
        "table_open": _Table}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)      # an address stays visible
        self.markup = text
        self.parsed = [_with_hard_breaks(token) for token in PARSER.parse(text)]


def _keep_maths(state: StateCore) -> None:
    """Let the backslashes of LaTeX be text; Markdown takes them for escapes."""
    for block in state.tokens:
        for token in block.children or ():
            if token.type == "text_special" and token.markup in MATHS:
                token.content = token.markup


PARSER.core.ruler.before("text_join", "keep_maths", _keep_maths)


def _with_hard_breaks(token: Token) -> Token:
    for child in token.children or ():
        if child.type == "softbreak":
            child.type, child.tag = "hardbreak", "br"
    return token
