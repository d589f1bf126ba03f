"""What schemas say of texts, as lexemes of the texts themselves, which have no quotes and escapes as JSON does."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ggpy.engine.structured.budget import MAX_DEPTH, WorkBudget
from ggpy.engine.structured.json_schema import shown_json
from ggpy.engine.structured.symbols import literal
from ggpy.engine.structured.text_formats import REGEXES
from ggpy.errors import GrammarError
from ggpy.text.json_pointer import target_of

MAX_PARTS = 1_000       # schemas that one text has to meet
VALUES_A_SCHEMA = 16    # of an enum, that take as long to write as a schema takes to read
MAX_GROUPS = 20         # in each other, in which ^ and $ may stand
# of a regular expression: an escape, a set of characters, which may lack its end, or one character
_ATOM = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*(?:\]|\\?\Z)|.", re.DOTALL)
_PLACES = frozenset(("^", "$", r"\b", r"\B", r"\A", r"\z", r"\Z"))


class TextReader:
    """Reads schemas of texts in `root`, a schema that `canonical` has made."""

    def __init__(self, root: Any, budget: WorkBudget) -> None:
        self._root = root
        self._budget = budget
        self._n_parts = 0
        self._known: dict[int, str | None] = {}     # by identity: `root` keeps its schemas

    def expression(self, schema: Any, path: str) -> str | None:
        """What a text has to be that meets `schema`, a part of `root`: lexemes joined by "&", "" for any; None if no
        text does.

        Raises GrammarError, naming path and keyword, for what cannot be said so.
        """
        if id(schema) not in self._known:
            self._n_parts = 0
            self._known[id(schema)] = self._one(schema, path, 0)
        return self._known[id(schema)]

    def _one(self, schema: Any, path: str, depth: int) -> str | None:
        self._n_parts += 1
        self._budget.spend(1, path)
        if self._n_parts > MAX_PARTS or depth > MAX_DEPTH:
            raise GrammarError(f"{path[:200]}: an argument has more than {MAX_PARTS:,} schemas to meet, or one that "
                               "refers to itself")
        if not isinstance(schema, dict):
            return "" if schema else None
        types = schema.get("type", "string")
        if "string" not in ([types] if isinstance(types, str) else types):
            return None
        self._budget.spend(len(schema.get("enum", ())) // VALUES_A_SCHEMA, path)
        parts: list[str | None] = [*_own(schema, path)]
        if "$ref" in schema:
            parts.append(self._one(target_of(schema["$ref"], self._root), f"{path}.$ref", depth + 1))
        for keyword in ("allOf", "anyOf", "oneOf"):
            if keyword in schema:
                found = [self._one(each, f"{path}.{keyword}[{i}]", depth + 1) for i, each in enumerate(schema[keyword])]
                parts.append(_all(found) if keyword == "allOf" else _any(found))
        return _all(parts)


def _all(expressions: Iterable[str | None]) -> str | None:
    found = list(expressions)
    return None if None in found else " & ".join(each for each in found if each)


def _any(expressions: Iterable[str | None]) -> str | None:
    found = [each for each in expressions if each is not None]
    return None if not found else "" if "" in found else f"({' | '.join(f'({each})' for each in found)})"


def _own(schema: Mapping[str, Any], path: str) -> Iterable[str | None]:
    """What the keywords of `schema` itself say."""
    for values in ([schema["const"]] if "const" in schema else None, schema.get("enum")):
        if values is not None:
            texts = [value for value in values if isinstance(value, str)]
            yield f"({' | '.join(map(literal, texts))})" if texts else None
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if most is not None and most < least:
        raise GrammarError(f"{path}.maxLength: {most:,} is less than minLength, {least:,}")
    if least or most is not None:
        yield f"/(?s:.{{{least},{'' if most is None else most}}})/"
    if "format" in schema:
        yield lexeme(REGEXES[schema["format"]])
    if "pattern" in schema:
        try:
            yield searched(schema["pattern"])
        except ValueError as error:
            raise GrammarError(f"{path}.pattern: {shown_json(schema['pattern'])} cannot be enforced on a text: "
                               f"{error}") from None


def lexeme(regex: str) -> str:
    """`regex` as a lexeme."""
    written = {"/": r"\/", "\n": r"\n", "\r": r"\r"}
    text = re.sub(r"\\?[/\n\r]|\\.", lambda found: written.get(found[0][-1], found[0]), regex)
    return f"/(?:{text})/"


def searched(pattern: str) -> str:
    """Texts in which `pattern` is found. Raises ValueError for what no lexeme can say."""
    return _searched(_ATOM.findall(pattern), 0)


def _searched(atoms: list[str], depth: int) -> str:
    choices = _choices(atoms)
    if len(choices) > 1:
        return f"({' | '.join(_searched(choice, depth) for choice in choices)})"
    if _is_group(atoms) and depth < MAX_GROUPS:
        return _searched(atoms[3 if atoms[1:3] == ["?", ":"] else 1 : -1], depth + 1)
    is_first, is_last = atoms[:1] == ["^"], atoms[-1:] == ["$"]
    middle = atoms[is_first : len(atoms) - is_last]
    if not _PLACES.isdisjoint(middle):
        raise ValueError("expected ^ and $ at its beginning and end alone, and no other places")
    if any(atoms[i : i + 2] == ["(", "?"] and atoms[i + 2 : i + 3] != [":"] for i in range(len(atoms))):
        raise ValueError("expected no flags, names of groups or looks ahead")
    if middle[-1:] == ["\\"]:
        raise ValueError("nothing stands behind the last \\")
    before, behind = ("" if is_there else "(?s:.*)" for is_there in (is_first, is_last))
    return lexeme(f"{before}(?:{''.join(middle)}){behind}")


def _choices(atoms: list[str]) -> list[list[str]]:
    """`atoms` between the "|" that stand in no group."""
    choices: list[list[str]] = [[]]
    depth = 0
    for atom in atoms:
        depth += (atom == "(") - (atom == ")")
        if atom == "|" and depth == 0:
            choices.append([])
        else:
            choices[-1].append(atom)
    return choices


def _is_group(atoms: list[str]) -> bool:
    """Whether all of `atoms` is one plain group."""
    if len(atoms) < 2 or atoms[0] != "(" or (atoms[1] == "?" and atoms[2:3] != [":"]):
        return False
    depth = 0
    for i, atom in enumerate(atoms):
        depth += (atom == "(") - (atom == ")")
        if depth == 0:
            return i == len(atoms) - 1
    return False
