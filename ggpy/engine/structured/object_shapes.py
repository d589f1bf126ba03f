"""The members that an object may have, in so many words, whatever parts of a schema say it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ggpy.engine.structured.budget import MAX_DEPTH, WorkBudget
from ggpy.engine.structured.json_schema import member, shown_json
from ggpy.errors import GrammarError
from ggpy.text.json_pointer import target_of

MAX_SHAPES = 64         # of one object
MAX_PARTS = 10_000      # schemas that describe one object
PARTS_A_SCHEMA = 256    # that are copied in the time that a schema takes to read
VALUES = ("enum", "const", "patternProperties")     # what is said of an object as a whole, or of names by a pattern

Located = tuple[Any, str]       # a schema and its path
Parts = tuple[tuple[Mapping[str, Any], str], ...]       # schemas that describe the same object


@dataclass(frozen=True, slots=True)
class ObjectShape:
    """One of the forms that an object may have."""

    members: dict[str, list[Located]]       # by name: all that the value has to meet
    required: frozenset[str]
    others: list[Located] | None            # as `members`, of all names that are not in `names`; None: no others
    names: tuple[str, ...]                  # of `members`, and those that may not be there
    n_least: int
    n_most: int | None


def object_shapes(schema: Any, path: str, budget: WorkBudget) -> tuple[list[ObjectShape], list[Located]]:
    """The forms of an object that meets `schema`, which `read_schema` has made: one at least.

    With them come schemas that are a `oneOf` alone: that no object meets two of it is yet to be seen. Raises
    GrammarError, naming path and keyword, where there is no form or what they are cannot be said.
    """
    reader = _Reader(schema, budget)
    choices = reader.choices(schema, path)
    found = [shape for parts in choices if (shape := _shape(parts, path, budget)) is not None]
    if not found:
        raise GrammarError(f"{path}{_why_none(choices[0]) if choices else ': expected the type object'}")
    return found, reader.exclusive


class _Reader:
    def __init__(self, root: Any, budget: WorkBudget) -> None:
        self._root = root
        self._budget = budget
        self._n_parts = 0
        self.exclusive: list[Located] = []

    def choices(self, schema: Any, path: str, depth: int = 0) -> list[Parts]:
        """The ways to meet `schema`, each as the parts that have to be met together."""
        self._n_parts += 1
        self._budget.spend(1, path)
        if self._n_parts > MAX_PARTS or depth > MAX_DEPTH:
            raise GrammarError(f"{path[:200]}: an object has more than {MAX_PARTS:,} schemas to meet, or one that "
                               "refers to itself")
        if not isinstance(schema, dict):
            return [()] if schema else []
        types = schema.get("type", "object")
        if "object" not in ([types] if isinstance(types, str) else types):
            return []
        for keyword in VALUES:
            if keyword in schema:
                raise GrammarError(f"{path}.{keyword}: cannot be enforced on arguments that the model writes between "
                                   "tags; name them in properties")
        found: list[Parts] = [((schema, path),)]
        if "$ref" in schema:
            at = member(path, "$ref")
            found = _both(found, self.choices(target_of(schema["$ref"], self._root), at, depth + 1), at)
        for i, each in enumerate(schema.get("allOf", ())):
            found = _both(found, self.choices(each, f"{path}.allOf[{i}]", depth + 1), f"{path}.allOf")
            self._budget.spend(sum(map(len, found)) // PARTS_A_SCHEMA, path)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                at = f"{path}.{keyword}"
                ways = [way for i, each in enumerate(schema[keyword])
                        for way in self.choices(each, f"{at}[{i}]", depth + 1)]
                found = _both(found, ways, at)
                if keyword == "oneOf" and len(ways) > 1:
                    self.exclusive.append(({keyword: schema[keyword]}, at))
        return found


def _both(these: list[Parts], those: list[Parts], path: str) -> list[Parts]:
    if len(these) * len(those) > MAX_SHAPES:
        raise GrammarError(f"{path}: an object may have more than {MAX_SHAPES} forms")
    return [(*this, *that) for this in these for that in those]


def _shape(parts: Parts, path: str, budget: WorkBudget) -> ObjectShape | None:
    """The object that meets all of `parts`; None if none does."""
    budget.spend(sum(len(part.get(keyword, ())) for keyword in ("properties", "required") for part, _ in parts), path)
    names = dict.fromkeys(name for keyword in ("properties", "required") for part, _ in parts
                          for name in part.get(keyword, ()))
    budget.spend((1 + len(names)) * len(parts), path)
    members = {name: found for name in names
               if (found := _all_of(_said(part, path, name) for part, path in parts)) is not None}
    others = _all_of((part.get("additionalProperties", True), member(path, "additionalProperties"))
                     for part, path in parts)
    n_least, n_most = _bounds(parts)
    n_possible = len(members) if others is None else None
    required = _required(parts)
    if (not required <= members.keys() or (n_possible is not None and n_possible < n_least)
            or (n_most is not None and n_most < max(n_least, len(required)))):
        return None
    return ObjectShape(members, required, others, tuple(names), n_least, n_most)


def _why_none(parts: Parts) -> str:
    """Why no object meets all of `parts`."""
    names = [name for name in sorted(_required(parts))
             if _all_of(_said(part, path, name) for part, path in parts) is None]
    if names:
        return f".required: there may be no member {shown_json(names[0])}; name it in properties"
    n_least, n_most = _bounds(parts)
    keyword, n_members = ("minProperties", n_least) if n_most is None else ("maxProperties", n_most)
    return f".{keyword}: no object of {n_members:,} members meets this schema"


def _required(parts: Parts) -> frozenset[str]:
    return frozenset(name for part, _ in parts for name in part.get("required", ()))


def _bounds(parts: Parts) -> tuple[int, int | None]:
    """How many members there are at least and at most."""
    return (max((part.get("minProperties", 0) for part, _ in parts), default=0),
            min((part["maxProperties"] for part, _ in parts if "maxProperties" in part), default=None))


def _said(part: Mapping[str, Any], path: str, name: str) -> Located:
    """What `part` says of member `name`."""
    if name in part.get("properties", ()):
        return part["properties"][name], member(f"{path}.properties", name)
    return part.get("additionalProperties", True), member(path, "additionalProperties")


def _all_of(schemas: Iterable[Located]) -> list[Located] | None:
    """Those of `schemas` that say anything; None if one of them allows nothing."""
    found = list(schemas)
    if any(schema is False for schema, _ in found):
        return None
    return [each for each in found if each[0] is not True and each[0] != {}]
