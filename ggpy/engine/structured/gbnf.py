"""GBNF, the grammars of llama.cpp, read into trees.

A rule is `name ::= alternatives`; alternatives are sequences of literals "...", classes [...], `.`, tokens <...>,
names of rules and groups (...), each repeated by *, +, ? or {m,n}. Characters are Unicode code points.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass

from ggpy.errors import GrammarError, shown

MAX_SOURCE = 1 << 18        # characters
MAX_NESTING = 60            # groups in groups
MAX_RULES = 2_000
MAX_REPEAT = 100_000
LAST = 0x10FFFF             # code point
SURROGATES = (0xD800, 0xDFFF)       # no text has them

WORD = frozenset(string.ascii_letters + string.digits + "-_")
DIGITS = frozenset(string.digits)
ESCAPES = {"n": "\n", "r": "\r", "t": "\t"} | {c: c for c in '\\"[]-'}
HEX_LENGTHS = {"x": 2, "u": 4, "U": 8}
COUNTS = {"*": (0, None), "+": (1, None), "?": (0, 1)}

Range = tuple[int, int]     # first and last code point


@dataclass(frozen=True, slots=True, eq=False)
class Chars:
    """One character of any of `ranges`, which are in order and apart."""

    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """What the rule `name` matches."""

    name: str
    at: int             # place in the source


@dataclass(frozen=True, slots=True, eq=False)
class Token:
    """The token `id`, or with `is_not` any other."""

    id: int
    is_not: bool


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    options: tuple[Node, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Repeat:
    item: Node
    least: int
    most: int | None


Node = Chars | Rule | Token | Sequence | Choice | Repeat


def parse_gbnf(source: str, token_id: Callable[[str], int | None]) -> dict[str, Node]:
    """The rules of a grammar. `token_id` knows the token that "<text>" or "<[id]>" stands for.

    Raises GrammarError, naming line and column.
    """
    if len(source) > MAX_SOURCE:
        raise GrammarError(f"the grammar has {len(source):,} characters, expected {MAX_SOURCE:,} at most")
    return _Parser(source, token_id).rules()


def in_order(ranges: list[Range]) -> tuple[Range, ...]:
    """`ranges` in order, those that meet joined, without what no text has."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    low, high = SURROGATES
    pieces = [piece for first, last in joined for piece in ((first, min(last, low - 1)), (max(first, high + 1), last))]
    return tuple(piece for piece in pieces if piece[0] <= piece[1])


def others(ranges: tuple[Range, ...]) -> tuple[Range, ...]:
    """All characters that are not in `ranges`."""
    edges = [-1, *(edge for each in ranges for edge in each), LAST + 1]
    return in_order([(last + 1, first - 1) for last, first in zip(edges[::2], edges[1::2], strict=True)
                     if last + 1 <= first - 1])


class _Parser:
    """Reads the source from front to back; `_at` is the place of the next character."""

    def __init__(self, source: str, token_id: Callable[[str], int | None]) -> None:
        self._source = source
        self._token_id = token_id
        self._at = 0
        self._depth = 0
        self._references: list[Rule] = []

    def rules(self) -> dict[str, Node]:
        rules: dict[str, Node] = {}
        self._skip_space(newlines=True)
        while self._next():
            start = self._at
            name = self._name()
            if name in rules:
                raise self._error(f"rule {name!r:.80} is defined for the second time", start)
            if len(rules) >= MAX_RULES:
                raise self._error(f"there are more than {MAX_RULES:,} rules", start)
            self._skip_space()
            self._expect("::=")
            self._skip_space(newlines=True)
            rules[name] = self._choice()
            if self._next() not in ("", "\r", "\n"):
                raise self._error(f"expected a sequence or the end of the line, found {self._found()}")
            self._skip_space(newlines=True)
        for reference in self._references:
            if reference.name not in rules:
                raise self._error(f"rule {reference.name!r:.80} is not defined", reference.at)
        if "root" not in rules:
            raise GrammarError(f"line 1, column 1: the grammar has no rule 'root', where answers begin; its rules are "
                               f"{', '.join(list(rules)[:10]) or 'none'}")
        return rules

    def _choice(self) -> Node:
        options = [self._sequence()]
        while self._next() == "|":
            self._at += 1
            self._skip_space(newlines=True)
            options.append(self._sequence())
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def _sequence(self) -> Node:
        items: list[Node] = []
        start = 0           # of the items of the last literal: a repetition is one of all its characters
        while (c := self._next()) and c not in "|)\r\n":
            if c in COUNTS or c == "{":
                if not items:
                    raise self._error(f"there is nothing before {c!r} to repeat")
                at = self._at
                least, most = self._counts()
                if most is not None and most < least:
                    raise self._error(f"expected {{m,n}} with m up to n, found {least} and {most}", at)
                repeated = items[start] if len(items) == start + 1 else Sequence(tuple(items[start:]))
                items[start:] = [Repeat(repeated, least, most)]
            else:
                start = len(items)
                items += self._item(c)
            self._skip_space(newlines=self._depth > 0)
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _item(self, c: str) -> list[Node]:
        if c == '"':
            self._at += 1
            return self._literal()
        if c == "[":
            return [self._class()]
        if c == ".":
            self._at += 1
            return [Chars(others(()))]
        if c in "<!":
            return [self._token()]
        if c == "(":
            return [self._group()]
        if c in WORD:
            at = self._at
            reference = Rule(self._name(), at)
            self._references.append(reference)
            return [reference]
        raise self._error(f'expected a literal "...", a class [...], a group (...) or the name of a rule, found '
                          f"{self._found()}")

    def _literal(self) -> list[Node]:
        chars: list[Node] = []
        start = self._at - 1
        while self._next() != '"':
            if not self._next():
                raise self._error("this literal has no end", start)
            code = self._char()
            chars.append(Chars(((code, code),)))
        self._at += 1
        return chars or [Sequence(())]

    def _class(self) -> Chars:
        start = self._at
        self._at += 1
        is_not = self._next() == "^"
        self._at += is_not
        ranges: list[Range] = []
        while self._next() != "]":
            if not self._next():
                raise self._error("this class has no end", start)
            at = self._at
            first = last = self._char()
            if self._next() == "-" and self._source[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._char()
            if last < first:
                raise self._error(f"the range {self._source[at : self._at]!r:.30} ends before it begins", at)
            ranges.append((first, last))
        self._at += 1
        chosen = others(in_order(ranges)) if is_not else in_order(ranges)
        if not chosen:
            raise self._error("no character is in this class", start)
        return Chars(chosen)

    def _char(self) -> int:
        at = self._at
        c = self._next()
        self._at += 1
        if c == "\\":
            c = self._next()
            self._at += 1
            if c in HEX_LENGTHS:
                return self._hex(HEX_LENGTHS[c], at)
            if c not in ESCAPES:
                raise self._error(f"unknown escape {chr(92) + c!r:.20}; expected one of \\n \\r \\t \\\\ \\\" \\[ \\] "
                                  "\\- \\xHH \\uHHHH \\UHHHHHHHH", at)
            c = ESCAPES[c]
        return self._checked(ord(c), at)

    def _hex(self, length: int, at: int) -> int:
        digits = self._source[self._at : self._at + length]
        if len(digits) < length or not all(c in string.hexdigits for c in digits):
            raise self._error(f"expected {length} hexadecimal digits, found {digits!r:.20}", at)
        self._at += length
        return self._checked(int(digits, 16), at)

    def _checked(self, code: int, at: int) -> int:
        if code > LAST or SURROGATES[0] <= code <= SURROGATES[1]:
            raise self._error(f"U+{code:04X} is no character", at)
        return code

    def _token(self) -> Token:
        at = self._at
        is_not = self._next() == "!"
        self._at += is_not
        self._expect("<")
        end = self._source.find(">", self._at)
        if end < 0:
            raise self._error("this token has no end", at)
        text = self._source[self._at - 1 : end + 1]
        self._at = end + 1
        id_ = self._token_id(text)
        if id_ is None:
            raise self._error(f"{text!r:.60} is no token of this model", at)
        return Token(id_, is_not)

    def _group(self) -> Node:
        start = self._at
        if self._depth >= MAX_NESTING:
            raise self._error(f"groups are nested deeper than {MAX_NESTING} levels")
        self._at += 1
        self._depth += 1
        self._skip_space(newlines=True)
        node = self._choice()
        self._depth -= 1
        if self._next() != ")":
            raise self._error("this group has no end", start)
        self._at += 1
        return node

    def _counts(self) -> tuple[int, int | None]:
        c = self._next()
        self._at += 1
        if c in COUNTS:
            return COUNTS[c]
        newlines = self._depth > 0
        self._skip_space(newlines)
        least = most = self._number()
        self._skip_space(newlines)
        if self._next() == ",":
            self._at += 1
            self._skip_space(newlines)
            if self._next() not in DIGITS:
                self._expect("}")
                return least, None
            most = self._number()
            self._skip_space(newlines)
        self._expect("}")
        return least, most

    def _number(self) -> int:
        start = self._at
        while self._next() in DIGITS:
            self._at += 1
        digits = self._source[start : self._at]
        if not digits or len(digits) > 9 or int(digits) > MAX_REPEAT:
            raise self._error(f"expected a number up to {MAX_REPEAT:,}, found {digits or self._found()}"[:120], start)
        return int(digits)

    def _name(self) -> str:
        start = self._at
        while self._next() in WORD:
            self._at += 1
        if self._at == start:
            raise self._error(f"expected the name of a rule, found {self._found()}")
        return self._source[start : self._at]

    def _next(self) -> str:
        """The next character; "" at the end, which is in no set."""
        return self._source[self._at : self._at + 1]

    def _expect(self, text: str) -> None:
        if not self._source.startswith(text, self._at):
            raise self._error(f"expected {text!r}, found {self._found()}")
        self._at += len(text)

    def _skip_space(self, newlines: bool = False) -> None:
        while c := self._next():
            if c == "#":
                while self._next() not in ("", "\r", "\n"):
                    self._at += 1
            elif c in " \t" or (newlines and c in "\r\n"):
                self._at += 1
            else:
                break

    def _found(self) -> str:
        return shown(self._next()) if self._next() else "the end of the grammar"

    def _error(self, message: str, at: int | None = None) -> GrammarError:
        at = self._at if at is None else at
        line = self._source.count("\n", 0, at) + 1
        column = at - self._source.rfind("\n", 0, at)
        return GrammarError(f"line {line}, column {column}: {message}")
