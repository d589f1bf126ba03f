"""Text that arrives in pieces, read by generators that wait for more where the rest could decide.

A reader is a generator: it yields to wait for the next piece and returns what it found. Whatever it decides depends on
the text alone, never on where pieces end: it waits as long as different continuations would be read differently.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]        # waits at each yield
Emit = Callable[[str], None]

SPACES = " \t\r\n"
_WORD = re.compile(r"[\w.\-:/]*")


class Scanner:
    """The text of one answer, of which only what readers may still need is kept."""

    def __init__(self) -> None:
        self._text = ""
        self._pos = 0
        self._saved: int | None = None
        self.is_ended = False

    def feed(self, text: str) -> None:
        """Append the next piece."""
        start = self._pos if self._saved is None else self._saved
        self._text = self._text[start:] + text
        self._pos -= start
        if self._saved is not None:
            self._saved = 0

    def save(self, n_before: int = 0) -> None:
        """Keep what is read from here on, and `n_before` characters that have just been read."""
        self._saved = self._pos - n_before

    def saved(self) -> str:
        """What has been read since `save`, which is no longer kept."""
        assert self._saved is not None
        text = self._text[self._saved:self._pos]
        self._saved = None
        return text

    def peek(self) -> Steps[str]:
        """The next character, which stays; "" at the end."""
        while self._pos == len(self._text):
            if self.is_ended:
                return ""
            yield
        return self._text[self._pos]

    def ahead(self, n: int) -> Steps[str]:
        """The next `n` characters, which stay; fewer at the end."""
        while len(self._text) < self._pos + n and not self.is_ended:
            yield
        return self._text[self._pos:self._pos + n]

    def spaces(self) -> Steps[str]:
        """Read whitespace."""
        return (yield from self.run_of(SPACES))

    def run_of(self, characters: str) -> Steps[str]:
        """Read characters of `characters`, as many as there are."""
        read = ""
        while (yield from self.peek()) and self._text[self._pos] in characters:
            read += self._text[self._pos]
            self._pos += 1
        return read

    def word(self) -> Steps[str]:
        """Read a name: letters, digits and `_.-:/`."""
        pieces: list[str] = []
        yield from self.chunk(_WORD, pieces.append)
        return "".join(pieces)

    def take(self, *texts: str) -> Steps[str | None]:
        """Read the longest of `texts` that stands here; None, and nothing is read, if none does."""
        text = yield from self.stands(*texts)
        self._pos += len(text or "")
        return text

    def stands(self, *texts: str) -> Steps[str | None]:
        """The longest of `texts` that stands here, which stays; None if none does."""
        longest_first = sorted(texts, key=len, reverse=True)
        while True:
            rest = self._text[self._pos:self._pos + len(longest_first[0])]
            for text in longest_first:
                if rest.startswith(text):
                    return text
                if text.startswith(rest) and not self.is_ended:
                    break       # it may be this one
            else:
                return None
            yield

    def until(self, texts: tuple[str, ...], emit: Emit) -> Steps[str | None]:
        """Read up to and with the first of `texts`, and return it; None if there is none up to the end.

        What stands before it goes to `emit`, as soon as it cannot be part of one.
        """
        marks = _marks(texts)
        while True:
            found = marks.pattern.search(self._text, self._pos)
            end = len(self._text) if self.is_ended else marks.hold(self._text, self._pos)
            if found is not None and found.start() < end:
                self._give(found.start(), emit)
                self._pos = found.end()
                return found.group()
            self._give(end, emit)
            if self.is_ended:
                return None
            yield

    def chunk(self, pattern: re.Pattern[str], emit: Emit) -> Steps[bool]:
        """Hand what `pattern`, a run of single characters, matches to `emit`; whether anything stands behind it."""
        while True:
            found = pattern.match(self._text, self._pos)
            assert found is not None
            self._give(found.end(), emit)
            if self._pos < len(self._text):
                return True
            if self.is_ended:
                return False
            yield

    def before(self, text: str, emit: Emit) -> Steps[None]:
        """As `until`, but the text that is found stays."""
        found = yield from self.until((text,), emit)
        self._pos -= len(found or "")

    def unread(self, n: int) -> None:
        """Have the last `n` characters read again."""
        self._pos -= n

    def rest(self, emit: Emit) -> Steps[None]:
        """Hand all that is left to `emit`."""
        while True:
            self._give(len(self._text), emit)
            if self.is_ended:
                return
            yield

    def _give(self, end: int, emit: Emit) -> None:
        if end > self._pos:
            text = self._text[self._pos:end]
            self._pos = end
            emit(text)

    def skip(self, n: int = 1) -> str:
        """Read `n` characters that are known to be there."""
        text = self._text[self._pos:self._pos + n]
        self._pos += n
        return text


class _Marks:
    """Texts to look for."""

    def __init__(self, texts: tuple[str, ...]) -> None:
        self._texts = texts
        self._n_max = max(map(len, texts))
        self._firsts = {text[0] for text in texts}
        self.pattern = re.compile("|".join(re.escape(text) for text in sorted(texts, key=len, reverse=True)))

    def hold(self, text: str, start: int) -> int:
        """From where on `text` could be the beginning of one, which is not complete; its length if nowhere."""
        for i in range(max(start, len(text) - self._n_max + 1), len(text)):
            if text[i] in self._firsts:
                rest = text[i:]
                if any(len(each) > len(rest) and each.startswith(rest) for each in self._texts):
                    return i
        return len(text)


@functools.lru_cache(maxsize=256)
def _marks(texts: tuple[str, ...]) -> _Marks:
    return _Marks(texts)
