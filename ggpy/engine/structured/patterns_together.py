"""How many patterns one text has to meet at once: llguidance's time for it doubles with each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ggpy.engine.structured.budget import MAX_DEPTH, WorkBudget
from ggpy.engine.structured.json_schema import member
from ggpy.errors import GrammarError
from ggpy.text.json_pointer import target_of

MAX_TOGETHER = 8        # patterns and formats of one text: 16 take a quarter of a second, 20 take eight
MAX_WAYS = 500          # to meet the schemas of one value; where there are more, they count as one
# of schemas that say anything of a text, or of members and items; others only say what else has to be met
TELLING = frozenset(("pattern", "format", "properties", "patternProperties", "additionalProperties", "items",
                     "prefixItems", "additionalItems"))

Located = tuple[Any, str]               # a schema and its path
Way = dict[int, tuple[Mapping[str, Any], str]]      # the schemas that have to be met together, by identity


def check_patterns(schema: Any, root: str, budget: WorkBudget | None = None) -> None:
    """Look at every value that `schema`, which `canonical` has made, describes; `budget` is what others left.

    Raises GrammarError, naming path and keyword from `root` on, if more than MAX_TOGETHER different patterns and
    formats must hold together for one, whatever parts of the schema say so.
    """
    _Looker(schema, root, budget or WorkBudget()).look()


class _Looker:
    """Looks at the values of one document. A group is the schemas that describe the same value."""

    def __init__(self, schema: Any, root: str, budget: WorkBudget) -> None:
        self._schema = schema
        self._root = root
        self._budget = budget
        self._others: dict[tuple[int, bool], Any] = {}      # kept, so that each has one identity

    def look(self) -> None:
        pending: list[list[Located]] = [[(self._schema, self._root)]]
        seen: set[frozenset[int]] = set()
        while pending:
            group = pending.pop()
            for way in self._ways(group, frozenset(), 0):
                if (key := frozenset(way)) in seen:     # reached by another reference
                    continue
                seen.add(key)
                parts = list(way.values())
                _check_together(parts)
                pending += self._inner(parts)

    def _work(self, n: int) -> None:
        self._budget.spend(n, self._root)

    def _ways(self, group: Iterable[Located], above: frozenset[int], depth: int) -> list[Way]:
        """The ways to meet all of `group`; schemas in `above` are met anyhow."""
        way: Way = {}
        here: set[int] = set()
        choices: list[list[Located]] = []
        pending = list(group)
        for schema, path in pending:        # which grows
            self._work(1)
            if schema is False:
                return []
            if not isinstance(schema, dict) or id(schema) in here or id(schema) in above:
                continue
            here.add(id(schema))
            if not TELLING.isdisjoint(schema):
                way[id(schema)] = (schema, path)
            if "$ref" in schema:
                pending.append((target_of(schema["$ref"], self._schema), f"{path[:300]}.$ref"))
            pending += ((each, f"{path}.allOf[{i}]") for i, each in enumerate(schema.get("allOf", ())))
            choices += ([(each, f"{path}.{keyword}[{i}]") for i, each in enumerate(schema[keyword])]
                        for keyword in ("anyOf", "oneOf") if keyword in schema)
        if choices and depth > MAX_DEPTH:
            raise GrammarError(f"{self._root}: choices are nested deeper than {MAX_DEPTH} levels, references included")
        self._work(len(above) if choices else 0)
        within = above | here
        ways = [way]
        for options in choices:
            ways = self._product(ways, [way for each in options for way in self._ways([each], within, depth + 1)])
        return ways

    def _product(self, these: list[Way], those: list[Way]) -> list[Way]:
        if min(len(these), len(those)) > 1 and len(these) * len(those) > MAX_WAYS:
            self._work(sum(map(len, (*these, *those))))
            return [{key: part for way in (*these, *those) for key, part in way.items()}]
        self._work(len(those) * sum(map(len, these)) + len(these) * sum(map(len, those)))
        ways = ({**this, **that} for this in these for that in those)
        return [*{frozenset(way): way for way in ways}.values()]

    def _inner(self, parts: list[tuple[Mapping[str, Any], str]]) -> Iterator[list[Located]]:
        """The groups of the members and items of a value that meets `parts`."""
        names = dict.fromkeys(name for part, _ in parts for name in part.get("properties", ()))
        self._work((1 + len(names)) * len(parts))
        for name in names:
            yield [each for part, path in parts for each in self._said(part, path, name)]
        yield [self._unnamed(part, path, with_others=True) for part, path in parts]
        n_first = max((len(_first_items(part)) for part, _ in parts), default=0)
        self._work((1 + n_first) * len(parts))
        for i in range(n_first + 1):
            yield [_item(part, path, i) for part, path in parts]

    def _said(self, part: Mapping[str, Any], path: str, name: str) -> Iterator[Located]:
        """What `part` says of member `name`."""
        if name in part.get("properties", ()):
            yield part["properties"][name], member(f"{path}.properties", name)
            if "patternProperties" in part:
                yield self._unnamed(part, path, with_others=False)
        else:
            yield self._unnamed(part, path, with_others=True)

    def _unnamed(self, part: Mapping[str, Any], path: str, *, with_others: bool) -> Located:
        """What `part` says of members by a pattern of their name, which is one at most, or of all others."""
        if "patternProperties" not in part:
            return part.get("additionalProperties", True), f"{path}.additionalProperties"
        key = (id(part), with_others)
        if key not in self._others:
            others = part.get("additionalProperties", True) if with_others else True
            self._others[key] = {"anyOf": [*part["patternProperties"].values(), others]}
        return self._others[key], f"{path}.patternProperties"


def _first_items(part: Mapping[str, Any]) -> Any:
    """What `part` says of the first items, one by one; old drafts have it in `items`."""
    return part["items"] if isinstance(part.get("items"), list) else part.get("prefixItems", ())


def _item(part: Mapping[str, Any], path: str, i: int) -> Located:
    """What `part` says of item `i`."""
    is_old = isinstance(part.get("items"), list)
    first = _first_items(part)
    if i < len(first):
        return first[i], f"{path}.{'items' if is_old else 'prefixItems'}[{i}]"
    keyword = "additionalItems" if is_old else "items"
    return part.get(keyword, True), f"{path}.{keyword}"


def _check_together(parts: Iterable[tuple[Mapping[str, Any], str]]) -> None:
    found: set[tuple[str, str]] = set()
    for part, path in parts:
        for keyword in ("pattern", "format"):
            if keyword in part:
                found.add((keyword, part[keyword]))
                if len(found) > MAX_TOGETHER:
                    raise GrammarError(f"{path}.{keyword}: more than {MAX_TOGETHER} patterns and formats would have to "
                                       "hold together for one text; expected fewer, or one that says it all")
