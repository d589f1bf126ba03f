"""Go's templates, as Ollama's models have them, read into nodes.

`go_to_jinja.py` writes them as Jinja. The grammar is that of https://pkg.go.dev/text/template, without templates that
are defined inside others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ggpy.errors import TemplateError, shown

MAX_NODES = 20_000
MAX_DEPTH = 50
BLANKS = " \t\r\n"

_COMMENT = re.compile(r"\{\{(?P<trim>-(?=\s))?\s*(?P<inside>)/\*.*?\*/\s*(?P<trim_behind>(?<=\s)-)?\}\}", re.DOTALL)
_COMMENT_BEGIN = re.compile(r"\{\{(?:-\s)?\s*/\*")
_ACTION = re.compile(r"\{\{(?P<trim>-(?=\s))?(?P<inside>(?:\"(?:\\.|[^\"\\\n])*\"|`[^`]*`|[^\"`])*?)"
                     r"(?P<trim_behind>(?<=\s)-)?\}\}", re.DOTALL)
_TOKEN = re.compile(
    r"\s*(?:(?P<string>\"(?:\\.|[^\"\\\n])*\"|`[^`]*`)|(?P<number>-?\d+(?:\.\d+)?)|(?P<variable>\$\w*)"
    r"|(?P<field>\.[A-Za-z_]\w*)|(?P<dot>\.)|(?P<name>[A-Za-z_]\w*)|(?P<sign>:=|=|,|\||\(|\)))", re.ASCII)


@dataclass(frozen=True, slots=True)
class Literal_:     # noqa: N801 (Literal is a type)
    """A text, a number, true, false or nil."""

    value: str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Ref:
    """A variable, or what `.` is, and fields of it."""

    variable: str               # "." or "$" or "$name"
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Call:
    """A function of some arguments, and fields of what it gives."""

    function: str               # "" for a value in parentheses
    arguments: tuple[Expression, ...]
    fields: tuple[str, ...] = ()


Expression = Literal_ | Ref | Call


@dataclass(frozen=True, slots=True)
class Text:
    """As it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Print:
    """A value that is written."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Assign:
    """A variable gets a value; a new one if it is declared."""

    name: str
    value: Expression
    is_new: bool


@dataclass(frozen=True, slots=True)
class Block:
    """What is written if, with or for each."""

    kind: str                   # "if", "with" or "range"
    value: Expression
    names: tuple[str, ...]      # of variables that hold it, or the place and the item
    body: list[Node] = field(default_factory=list)
    otherwise: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Jump:
    """`break` or `continue`."""

    kind: str


Node = Text | Print | Assign | Block | Jump


def parse_go(source: str) -> list[Node]:
    """The nodes of a template. Raises TemplateError, with the line."""
    return _Parser(source).parse()


class _Parser:
    def __init__(self, source: str) -> None:
        self._pieces = list(_pieces(source))
        self._at = 0
        self._n_nodes = 0

    def parse(self) -> list[Node]:
        nodes, closing, line = self._nodes(0)
        if closing is not None:
            raise _error(line, f"{{{{{closing[0]}}}}} closes nothing")
        return nodes

    def _nodes(self, depth: int) -> tuple[list[Node], list[str] | None, int]:
        """Nodes up to `end` or `else`, whose words are returned, too; None at the end of the template."""
        nodes: list[Node] = []
        if depth > MAX_DEPTH:
            raise _error(self._pieces[self._at - 1][2], f"blocks are nested more than {MAX_DEPTH} deep")
        while self._at < len(self._pieces):
            kind, text, line = self._pieces[self._at]
            self._at += 1
            self._n_nodes += 1
            if self._n_nodes > MAX_NODES:
                raise _error(line, f"there are more than {MAX_NODES:,} parts")
            if kind == "text":
                nodes.append(Text(text))
                continue
            words = _words(text, line)
            if not words:
                continue
            if words[0] in ("end", "else"):
                return nodes, words, line
            nodes.append(self._node(words, depth, line))
        return nodes, None, self._pieces[-1][2] if self._pieces else 1

    def _node(self, words: list[str], depth: int, line: int) -> Node:
        head = words[0]
        if head in ("if", "with", "range"):
            return self._block(head, words[1:], depth, line)
        if head in ("break", "continue") and len(words) == 1:
            return Jump(head)
        if head in ("define", "template", "block"):
            raise _error(line, f"{{{{{head}}}}} is not understood here")
        names, sign, rest = _declared(words)
        if names:
            if len(names) != 1:
                raise _error(line, "two variables are for range alone")
            return Assign(names[0], _expression(rest, line), sign == ":=")
        return Print(_expression(words, line))

    def _block(self, kind: str, words: list[str], depth: int, line: int) -> Block:
        names, _, rest = _declared(words)
        block = Block(kind, _expression(rest, line), names)
        nodes, closing, at = self._nodes(depth + 1)
        block.body.extend(nodes)
        if closing is not None and closing[0] == "else":
            if len(closing) > 1:        # "else if" shares its end with the whole
                if closing[1] not in ("if", "with"):
                    raise _error(at, f"else {closing[1]} is not understood here")
                block.otherwise.append(self._node(closing[1:], depth + 1, at))
                return block
            nodes, closing, at = self._nodes(depth + 1)
            block.otherwise.extend(nodes)
        if closing is None or closing[0] != "end":
            raise _error(line, f"{{{{{kind}}}}} has no {{{{end}}}}")
        return block


def _pieces(source: str) -> Iterator[tuple[Literal["text", "action"], str, int]]:
    """Texts, and what stands between braces, with the number of the line."""
    at, line, trims = 0, 1, False
    while at < len(source):
        start = source.find("{{", at)
        is_comment = start >= 0 and _COMMENT_BEGIN.match(source, start) is not None
        match = None if start < 0 else (_COMMENT if is_comment else _ACTION).match(source, start)
        text = source[at : start if start >= 0 else len(source)]
        n_lines = text.count("\n")
        text = text.lstrip(BLANKS) if trims else text
        text = text.rstrip(BLANKS) if match and match["trim"] else text
        if text:
            yield "text", text, line
        line += n_lines
        if start < 0:
            return
        if match is None:
            raise _error(line, "an action has no }}")
        yield "action", match["inside"], line
        line += match[0].count("\n")
        at, trims = match.end(), bool(match["trim_behind"])


def _words(inside: str, line: int) -> list[str]:
    """The tokens of an action; fields stay apart from what they are of unless they follow it without a blank."""
    text = inside.strip()
    words: list[str] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None or match.end() == at:
            raise _error(line, f"{shown(text[at:])} is not understood")
        word = match[0].strip()
        is_joined = match["field"] is not None and match[0] == word and bool(words) and (
            words[-1] == ")" or words[-1].startswith(("$", ".")))
        if is_joined and words[-1] != ")" and words[-1] != ".":
            words[-1] += word
        else:
            words.append(f"){word}" if is_joined and words[-1] == ")" else word)
        at = match.end()
    return words


def _declared(words: list[str]) -> tuple[tuple[str, ...], str, list[str]]:
    """The variables that an action gives a value, how, and what stands behind that."""
    for sign in (":=", "="):
        if sign in words[:4]:
            i = words.index(sign)
            names = tuple(word for word in words[:i] if word != ",")
            if names and all(re.fullmatch(r"\$\w+", name) for name in names):
                return names, sign, words[i + 1 :]
    return (), "", words


def _expression(words: list[str], line: int) -> Expression:
    """A pipeline: what stands before `|` is the last argument of what follows. Raises TemplateError."""
    reader = _Reader(words, line)
    found = reader.pipeline(0)
    if reader.words:
        raise _error(line, f"{shown(reader.words[0])} is one word too many")
    return found


class _Reader:
    """Takes expressions from the front of `words`."""

    def __init__(self, words: list[str], line: int) -> None:
        self.words = list(words)
        self._line = line

    def pipeline(self, depth: int) -> Expression:
        if depth > MAX_DEPTH:
            raise _error(self._line, "parentheses are nested too deeply")
        found = self._command(depth, ())
        while self.words and self.words[0] == "|":
            self.words.pop(0)
            found = self._command(depth, (found,))
        return found

    def _command(self, depth: int, behind: tuple[Expression, ...]) -> Expression:
        if not self.words:
            raise _error(self._line, "a value is missing")
        name = self.words[0]
        if re.fullmatch(r"[A-Za-z_]\w*", name) and name not in ("true", "false", "nil"):
            self.words.pop(0)
            arguments = []
            while self.words and self.words[0] != "|" and not self.words[0].startswith(")"):
                arguments.append(self._operand(depth))
            return Call(name, (*arguments, *behind))
        if behind:
            raise _error(self._line, f"{shown(name)} is no function")
        return self._operand(depth)

    def _operand(self, depth: int) -> Expression:
        word = self.words.pop(0)
        if word == "(":
            inner = self.pipeline(depth + 1)
            if not self.words or self.words[0] != ")":
                raise _error(self._line, "a parenthesis is not closed")
            self.words.pop(0)
            fields = []
            while self.words and self.words[0].startswith(")."):
                fields.append(self.words.pop(0)[2:])
            return Call("", (inner,), tuple(fields)) if fields else inner
        if word[0] in '"`':
            return Literal_(word[1:-1] if word[0] == "`" else _unquoted(word, self._line))
        if word[0] == "$":
            variable, *names = word.split(".")
            return Ref(variable, tuple(names))
        if word[0] == ".":
            return Ref(".", tuple(word.split(".")[1:]) if word != "." else ())
        if word in ("true", "false", "nil"):
            return Literal_({"true": True, "false": False, "nil": None}[word])
        if re.fullmatch(r"-?[\d.]+", word):
            return Literal_(float(word) if "." in word else int(word))
        if re.fullmatch(r"[A-Za-z_]\w*", word):
            return Call(word, ())
        raise _error(self._line, f"{shown(word)} is not understood")


def _unquoted(word: str, line: int) -> str:
    """A text in Go's double quotes, whose escapes are Python's, too."""
    try:
        return str(ast.literal_eval(word))
    except (SyntaxError, ValueError) as error:
        raise _error(line, f"{shown(word)} is no text") from error


def _error(line: int, problem: str) -> TemplateError:
    return TemplateError(f"template, line {line}: {problem}")
