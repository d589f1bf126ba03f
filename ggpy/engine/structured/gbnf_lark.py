"""GBNF as llguidance's Lark: which parts of a grammar are lexemes.

In GBNF there is no lexer: every character is a symbol of its own. llguidance first splits a text into lexemes, as long
as they can be, and parses these, which is much faster, but means something else: in `[a-z]* "x"` the first lexeme takes
every x. So the largest regular parts of a grammar become lexemes only where this makes no difference: wherever a lexeme
may end and something else may follow, no lexeme that begins like it could go on with that, too. A lexeme that could is
taken apart, until in the end it is single characters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ggpy.engine.structured.gbnf import Chars, Choice, Node, Range, Repeat, Rule, Sequence, Token
from ggpy.engine.structured.positions import MAX_NODES, Positions, TooLargeError, overlap, positions_of, union
from ggpy.errors import GrammarError

# a grammar may allow one text alone, of any length: llguidance would write it out
NO_FORCING = '%llguidance {"no_forcing": true}'
MAX_STEPS = 300_000         # of comparing lexemes: about 1 s
MAX_RULE_DEPTH = 40         # of rules in rules that make a lexeme


@dataclass(slots=True, eq=False)
class Lexeme:
    """A regular part, or one token.

    `key` says which one: a node, or a run of items of a sequence. Sets of lexemes are numbers whose bits are those at
    their `place`.
    """

    key: object
    node: Node
    positions: Positions | None     # None: a token
    place: int
    after: int = 0                  # the lexemes that may follow it

    @property
    def is_nullable(self) -> bool:
        return self.positions is not None and self.positions.is_nullable


@dataclass(slots=True, eq=False)
class Empty:
    """The empty text."""


Symbol = Lexeme | Rule | Empty


@dataclass(slots=True, eq=False)
class Series:
    items: list[Tree]


@dataclass(slots=True, eq=False)
class Options:
    items: list[Tree]


@dataclass(slots=True, eq=False)
class Times:
    item: Tree
    least: int
    most: int | None


Tree = Symbol | Series | Options | Times


def gbnf_to_lark(rules: Mapping[str, Node], eog_ids: Iterable[int] = ()) -> str:
    """The grammar of `rules` in llguidance's Lark; tokens of `eog_ids` are never "any other token".

    Raises GrammarError if it is too large.
    """
    split: set[object] = set()
    regular = _regular_rules(rules)
    while True:
        lowered = _Lowered(rules, regular, split)
        conflicts = Neighbours(lowered.lexemes, lowered.find_what_follows()).conflicts()
        if not conflicts:
            return _Writer(rules, lowered, tuple(sorted(eog_ids))).text()
        split |= conflicts


def _regular_rules(rules: Mapping[str, Node]) -> set[str]:
    """The rules that contain no token, at no depth themselves, and not too much."""
    uses = {name: Counter(_references(node)) for name, node in rules.items()}
    users: dict[str, list[str]] = {name: [] for name in rules}
    for name, used in uses.items():
        for each in used:
            if each:
                users[each].append(name)
    n_missing = {name: len(used) for name, used in uses.items()}        # of what it uses, not known to be regular
    pending = [name for name, n in n_missing.items() if n == 0]
    sizes: dict[str, tuple[int, int]] = {}              # nodes of a rule with those in it, and how deep rules go
    while pending:
        name = pending.pop()
        used = uses[name]
        size = _size(rules[name]) + sum(n * sizes[each][0] for each, n in used.items())
        depth = 1 + max((sizes[each][1] for each in used), default=0)
        if size <= MAX_NODES and depth <= MAX_RULE_DEPTH:
            sizes[name] = size, depth
            for user in users[name]:
                n_missing[user] -= 1
                if n_missing[user] == 0:
                    pending.append(user)
    return set(sizes)


def _references(node: Node) -> list[str]:
    """Names of the rules in `node`; "" for each token."""
    match node:
        case Rule(name):
            return [name]
        case Token():
            return [""]
        case Sequence(nodes) | Choice(nodes):
            return [name for each in nodes for name in _references(each)]
        case Repeat(item):
            return _references(item)
        case Chars():
            return []


def _size(node: Node) -> int:
    """How many nodes there are in `node`, without those of rules."""
    match node:
        case Sequence(nodes) | Choice(nodes):
            return 1 + sum(map(_size, nodes))
        case Repeat(item):
            return 1 + _size(item)
        case _:
            return 1


class _Lowered:
    """The rules that are not lexemes, as trees of lexemes; none of those in `split` is one."""

    def __init__(self, rules: Mapping[str, Node], regular: set[str], split: set[object]) -> None:
        self._rules, self._regular, self._split = rules, regular, split
        self.lexemes: list[Lexeme] = []
        self.trees: dict[str, Tree] = {}
        pending = ["root"]
        while pending:
            name = pending.pop()
            if name not in self.trees:
                self.trees[name] = tree = self._tree(rules[name])
                pending += [each.name for each in _symbols(tree) if isinstance(each, Rule)]

    def _tree(self, node: Node) -> Tree:
        if self._is_regular(node):
            lexeme = self._lexeme(node, node)
            if lexeme is not None:
                return lexeme
        match node:
            case Sequence(items):
                return self._series(node, items)
            case Choice(options):
                return Options([self._tree(option) for option in options])
            case Repeat(item, least, most):
                return Empty() if most == 0 else Times(self._tree(item), least, most)
            case Rule():
                return node
            case Token():
                return self._add(node, node, None)
            case Chars():
                raise AssertionError("one character is always a lexeme")

    def _series(self, node: Sequence, items: tuple[Node, ...]) -> Tree:
        """Runs of regular items are one lexeme if they may be."""
        trees: list[Tree] = []
        start = 0
        while start < len(items):
            stop = start
            while stop < len(items) and self._is_regular(items[stop]):
                stop += 1
            run = self._lexeme((node, start, stop), Sequence(items[start:stop])) if stop > start + 1 else None
            if run is None:
                stop = max(stop, start + 1)
                trees += [self._tree(item) for item in items[start:stop]]
            else:
                trees.append(run)
            start = stop
        return Series(trees)

    def _lexeme(self, key: object, node: Node) -> Lexeme | Empty | None:
        """`node` as a lexeme; None if it must be taken apart."""
        if key in self._split:
            return None
        try:
            positions = positions_of(node, self._rules)
        except TooLargeError:
            self._split.add(key)
            return None
        if not positions.chars:
            return Empty()
        return self._add(key, node, positions)

    def _add(self, key: object, node: Node, positions: Positions | None) -> Lexeme:
        self.lexemes.append(Lexeme(key, node, positions, len(self.lexemes)))
        return self.lexemes[-1]

    def _is_regular(self, node: Node) -> bool:
        match node:
            case Rule(name):
                return name in self._regular
            case Token():
                return False
            case Sequence(nodes) | Choice(nodes):
                return all(map(self._is_regular, nodes))
            case Repeat(item):
                return self._is_regular(item)
            case Chars():
                return True

    def find_what_follows(self) -> int:
        """Set `after` of all lexemes; returns those that a text may begin with."""
        self._first: dict[str, tuple[int, bool]] = dict.fromkeys(self.trees, (0, False))
        self._after = dict.fromkeys(self.trees, 0)
        while True:
            before = dict(self._first)
            for name, tree in reversed(self.trees.items()):     # what is used stands behind what uses it, mostly
                self._first[name] = self._first_of(tree)
            if before == self._first:
                break
        while True:
            before_after = dict(self._after)
            for name, tree in self.trees.items():
                self._follow(tree, self._after[name])
            if before_after == self._after:
                return self._first["root"][0]

    def _first_of(self, tree: Tree) -> tuple[int, bool]:
        """The lexemes that texts of `tree` may begin with, and whether it matches the empty text."""
        match tree:
            case Lexeme():
                return 1 << tree.place, tree.is_nullable
            case Rule(name):
                return self._first[name]
            case Empty():
                return 0, True
            case Options():
                firsts = [self._first_of(item) for item in tree.items]
                return union(first for first, _ in firsts), any(is_nullable for _, is_nullable in firsts)
            case Times():
                first, is_nullable = self._first_of(tree.item)
                return first, is_nullable or tree.least == 0
            case Series():
                result = 0
                for item in tree.items:
                    first, is_nullable = self._first_of(item)
                    result |= first
                    if not is_nullable:
                        return result, False
                return result, True

    def _follow(self, tree: Tree, after: int) -> None:
        """Note that lexemes of `after` may follow `tree`."""
        match tree:
            case Lexeme():
                tree.after |= after
            case Rule(name):
                self._after[name] |= after
            case Options():
                for item in tree.items:
                    self._follow(item, after)
            case Times():
                again = 0 if tree.most == 1 else self._first_of(tree.item)[0]
                self._follow(tree.item, after | again)
            case Series():
                for item in reversed(tree.items):
                    self._follow(item, after)
                    first, is_nullable = self._first_of(item)
                    after = first | (after if is_nullable else 0)
            case Empty():
                pass


def _symbols(tree: Tree) -> list[Symbol]:
    match tree:
        case Series(items) | Options(items):
            return [symbol for item in items for symbol in _symbols(item)]
        case Times(item):
            return _symbols(item)
        case _:
            return [tree]


class Neighbours:
    """Which lexemes may come at the same place, and so hinder each other. A text begins with one of `first`."""

    def __init__(self, lexemes: list[Lexeme], first: int) -> None:
        self._lexemes = lexemes
        self._first_bytes = [each.positions.first_bytes() if each.positions else 0 for each in lexemes]
        self._n_steps = 0
        self._together = [0] * len(lexemes)     # for each lexeme those that may come where it may
        pending = [(first, first)]
        while pending:
            left, right = pending.pop()
            for i in bits_of(left):
                new = right & ~self._together[i]
                self._together[i] |= right
                for j in bits_of(new):
                    # both may have been read, so what follows either may come
                    if self._share_a_text(lexemes[i], lexemes[j]):
                        pending.append((lexemes[i].after, lexemes[j].after))

    def conflicts(self) -> set[object]:
        """Keys of lexemes that may go on where another one that began like them ends."""
        found: set[object] = set()
        for taker, together in zip(self._lexemes, self._together, strict=True):
            if taker.positions is not None and any(taker.positions.following):
                for i in bits_of(together):
                    if self._takes(taker, taker.positions, self._lexemes[i]):
                        found.add(taker.key)
                        break
        return found

    def _takes(self, taker: Lexeme, positions: Positions, ender: Lexeme) -> bool:
        """Whether after a text of `ender`, `taker` could take what follows it."""
        if ender.positions is None or not self._first_bytes[taker.place] & self._first_bytes[ender.place]:
            return False
        after = union(self._first_bytes[i] for i in bits_of(ender.after))
        last = ender.positions.last
        return bool(after) and any(b in last and positions.next_bytes(a) & after
                                   for a, b in self._pairs(positions, ender.positions))

    def _share_a_text(self, left: Lexeme, right: Lexeme) -> bool:
        """Whether a text that is not empty is one of both."""
        if left is right:
            return True
        if left.positions is None or right.positions is None:
            return left.positions is right.positions
        if not self._first_bytes[left.place] & self._first_bytes[right.place]:
            return False
        left_last, right_last = left.positions.last, right.positions.last
        return any(a in left_last and b in right_last for a, b in self._pairs(left.positions, right.positions))

    def _pairs(self, left: Positions, right: Positions) -> Iterator[tuple[int, int]]:
        """Positions of both that the same text leads to."""
        pending = [(a, b) for a in left.first for b in right.first]
        seen = set(pending)
        while pending:
            a, b = pending.pop()
            self._n_steps += 1
            if self._n_steps > MAX_STEPS:
                raise GrammarError("the grammar has too many parts that are alike; make it smaller")
            if overlap(left.chars[a], right.chars[b]):
                yield a, b
                new = {(x, y) for x in left.following[a] for y in right.following[b]} - seen
                seen |= new
                pending += new


def bits_of(number: int) -> Iterator[int]:
    """The places of the bits that are set."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest


@dataclass(slots=True)
class _Writer:
    """Writes trees as Lark: rules are r0, r1, ..., lexemes and what they consist of T0, T1, ..."""

    rules: Mapping[str, Node]
    lowered: _Lowered
    eog_ids: tuple[int, ...]
    _rule_names: dict[str, str] = field(default_factory=dict)
    _terminal_names: dict[str, str] = field(default_factory=dict)
    _terminals: list[str] = field(default_factory=list)

    def text(self) -> str:
        for i, name in enumerate(self.lowered.trees):
            self._rule_names[name] = f"r{i}"
        rules = [f"{self._rule_names[name]}: {self._tree(tree)}" for name, tree in self.lowered.trees.items()]
        return "\n".join([NO_FORCING, f"start: {self._rule_names['root']}", *rules, *self._terminals, ""])

    def _tree(self, tree: Tree) -> str:
        match tree:
            case Lexeme(node=Token(id_, is_not)):
                return f"<[^{','.join(map(str, (id_, *self.eog_ids)))}]>" if is_not else f"<[{id_}]>"
            case Lexeme():
                return self._lexeme(tree)
            case Rule(name):
                return self._rule_names[name]
            case Empty():
                return '""'
            case Series(items):
                return " ".join(self._grouped(item) for item in items) or '""'
            case Options(items):
                return " | ".join(self._tree(item) for item in items)
            case Times(item, least, most):
                return self._grouped(item) + _count(least, most)

    def _grouped(self, tree: Tree) -> str:
        return f"({self._tree(tree)})"

    def _lexeme(self, lexeme: Lexeme) -> str:
        body = self._regex(lexeme.node)
        if lexeme.is_nullable:        # a lexeme has one character at least
            return self._terminal(f"({body}) & /(?s:.+)/") + "?"
        return self._terminal(body)

    def _terminal(self, body: str) -> str:
        name = f"T{len(self._terminals)}"
        self._terminals.append(f"{name}: {body}")
        return name

    def _regex(self, node: Node) -> str:
        match node:
            case Chars(ranges):
                return f"/[{''.join(map(_range, ranges))}]/"
            case Rule(name):
                if name not in self._terminal_names:
                    self._terminal_names[name] = self._terminal(self._regex(self.rules[name]))
                return self._terminal_names[name]
            case Sequence(items):
                return self._sequence(items)
            case Choice(options):
                return "(" + " | ".join(self._regex(option) for option in options) + ")"
            case Repeat(item, least, most):
                return '""' if most == 0 else f"({self._regex(item)}){_count(least, most)}"
            case Token():
                raise AssertionError("a token is not regular")

    def _sequence(self, items: tuple[Node, ...]) -> str:
        """Characters that follow each other are one regular expression."""
        parts: list[str] = []
        for item in items:
            part = self._regex(item)
            if isinstance(item, Chars) and parts and parts[-1].startswith("/"):
                parts[-1] = parts[-1][:-1] + part[1:]
            else:
                parts.append(part)
        return "(" + " ".join(parts) + ")" if parts else '""'


def _range(each: Range) -> str:
    first, last = each
    return f"\\x{{{first:X}}}" if first == last else f"\\x{{{first:X}}}-\\x{{{last:X}}}"


def _count(least: int, most: int | None) -> str:
    return {(0, None): "*", (1, None): "+", (0, 1): "?"}.get(
        (least, most), f"{{{least},{'' if most is None else most}}}")
