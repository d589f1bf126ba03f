"""Arguments of calls that stand between tags, one by one: texts as they are, all else as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from ggpy.engine.structured.argument_order import order_rules
from ggpy.engine.structured.budget import WorkBudget
from ggpy.engine.structured.compiler import compile_grammar, inline_schema, schema_grammar
from ggpy.engine.structured.json_schema import shown_json
from ggpy.engine.structured.object_shapes import Located, ObjectShape, object_shapes
from ggpy.engine.structured.standalone import standalone
from ggpy.engine.structured.symbols import literal, symbols
from ggpy.engine.structured.text_lexeme import TextReader
from ggpy.engine.structured.tokens import GrammarTokens
from ggpy.errors import GrammarError
from ggpy.text.tool_calls.format import ArgumentTags
from ggpy.text.tool_calls.tool_list import ToolList

TEXT_KEYWORDS = ("pattern", "format", "minLength", "maxLength", "enum", "const")
ANY_TEXT = "/(?s:.*)/"
ANY_KEY = r"[A-Za-z0-9_.\-]{1,64}"
MAX_BLAMED = 100        # parts of a schema that are asked one by one which of them is refused
# characters of the rules of one tool, and of what is checked beside them: each argument brings along what it refers to
MAX_RULES_OF_TOOL = 1 << 20


def read_tags(value: Mapping[str, Any], path: str) -> ArgumentTags:
    """What a source has. Raises GrammarError."""
    names = [each.name for each in fields(ArgumentTags)]
    if sorted(value) != sorted(names) or not all(isinstance(text, str) and text for text in value.values()):
        raise GrammarError(f"{path}: expected texts {', '.join(names)}")
    return ArgumentTags(**value)


class TaggedArguments:
    """Rules of the arguments that `schema`, which `read_schema` has made, lets the tool `name` have.

    `tools` says how they are read: one that is a text stands between tags as it is, any other as JSON.
    """

    def __init__(self, tools: ToolList, name: str, schema: Any, path: str, tags: ArgumentTags,
                 tokens: GrammarTokens, budget: WorkBudget) -> None:
        self._tools = tools
        self._name = name
        self._schema = schema
        self._path = path
        self._tags = tags
        self._tokens = tokens
        self._key_begin, self._text_begin, self._json_begin, self._end = (
            symbols(text, tokens) for text in (tags.key_begin, tags.text_begin, tags.json_begin, tags.value_end))
        self._budget = budget
        self._texts = TextReader(schema, budget)
        self._checks: list[Located] = []
        self._n_characters = 0
        self._n_shapes = 1

    def rules(self, rule: str) -> list[str]:
        """The rules, the first of which is `rule`: arguments in the schema's order, and others behind them.

        Raises GrammarError, naming the place, for a schema that cannot be enforced.
        """
        shapes, exclusive = object_shapes(self._schema, self._path, self._budget)
        self._n_shapes = len(shapes)
        if len(shapes) > 1:
            shapes = [found for shape in shapes if (found := self._readable(shape)) is not None] or shapes
        self._checks += [(standalone(schema, self._schema), path) for schema, path in exclusive]
        rules = [rule] if len(shapes) == 1 else [f"{rule}_{i}" for i in range(len(shapes))]
        lines = [] if len(shapes) == 1 else [f"{rule}: {' | '.join(rules)}"]
        for each, shape in zip(rules, shapes, strict=True):
            for line in self._object(each, shape):
                lines.append(line)
                self._count(line)
        self._check()
        return lines

    def _count(self, text: str) -> None:
        self._n_characters += len(text)
        if self._n_characters > MAX_RULES_OF_TOOL:
            raise GrammarError(f"{self._path}: the grammar of these arguments has more than {MAX_RULES_OF_TOOL:,} "
                               "characters")

    def _check(self) -> None:
        """Have the compiler say whether anything meets what it has to see as a whole: it does not tell of lexemes."""
        if not self._checks:
            return
        parts = [f"p{i}: %json {inline_schema(schema)}" for i, (schema, _) in enumerate(self._checks)]
        start = f"start: {' | '.join(f'p{i}' for i in range(len(parts)))}"
        try:
            compile_grammar(self._tokens.index, "\n".join((start, *parts, "")))
        except GrammarError as error:
            for schema, path in self._checks[:MAX_BLAMED]:
                try:
                    compile_grammar(self._tokens.index, schema_grammar(schema))
                except GrammarError as its:
                    keywords = [keyword for keyword in TEXT_KEYWORDS if keyword in schema]
                    raise GrammarError(f"{path}: {', '.join(keywords)}{': ' if keywords else ''}{its}") from error
            raise GrammarError(f"{self._path}: {error}") from error

    def _object(self, rule: str, shape: ObjectShape) -> Iterator[str]:
        yield from order_rules(rule, shape, self._path)
        for i, (key, schemas) in enumerate(shape.members.items()):
            if key != key.strip() or "\n" in key or self._tags.text_begin[0] in key:
                raise GrammarError(f"{self._path}.properties: {shown_json(key)} cannot stand between the tags that "
                                   "this model writes around names")
            yield from self._argument(f"{rule}_{i}", literal(key), schemas, self._is_text(key))
        if shape.others is not None:
            names = [literal(name) for name in shape.names if re.fullmatch(ANY_KEY, name)]
            yield f"{rule.upper()}_KEY: /{ANY_KEY}/" + (f" & ~({' | '.join(names)})" if names else "")
            yield from self._argument(f"{rule}_other", f"{rule.upper()}_KEY", shape.others, self._is_text(None))

    def _readable(self, shape: ObjectShape) -> ObjectShape | None:
        """`shape`, one of several, as they are read, where what one says of a name holds for all; None if it is not.

        Those of its others are members that are read in another way, and there are none that are read as a text but
        can be none.
        """
        parameters = self._tools.parameters(self._name)
        self._budget.spend(len(parameters) + len(shape.members), self._path)
        names = [name for name in parameters
                 if name not in shape.names and self._is_text(name) != self._is_text(None)]
        members = {**shape.members, **(dict.fromkeys(names, shape.others) if shape.others is not None else {})}
        members = {key: schemas for key, schemas in members.items() if not self._is_text(key)
                   or all(self._texts.expression(schema, path) is not None for schema, path in schemas)}
        if not shape.required <= members.keys():
            return None
        return replace(shape, members=members, names=(*shape.names, *names))

    def _is_text(self, key: str | None) -> bool:
        return self._tools.is_text(self._name, key)

    def _argument(self, rule: str, key: str, schemas: list[Located], is_text: bool) -> Iterator[str]:
        """Rules of one argument, whose value meets all of `schemas`."""
        # what is no JSON is a text then; but one lexeme of any text would hide JSON that another shape has here
        has_two = not schemas and not is_text and self._text_begin != self._json_begin
        is_free = has_two or (not schemas and not is_text and self._n_shapes == 1)
        ways = []
        if is_text or is_free:
            ways.append(f"{self._text_begin} {rule}_text")
            yield from self._text_rules(f"{rule}_text", self._text(schemas))
        if has_two or not ways:
            ways.append(f"{self._json_begin} {rule}_json {self._end}")
            parts = [schema for schema, _ in schemas]
            yield f"{rule}_json: %json {inline_schema(self._alone(parts))}"
        yield f"{rule}: {self._key_begin} {key} ({' | '.join(ways)})"

    def _text(self, schemas: list[Located]) -> str:
        """What a text has to be."""
        found = [(self._texts.expression(schema, path), path) for schema, path in schemas]
        for expression, path in found:
            if expression is None:
                raise GrammarError(f"{path}: this argument is a text, which does not meet this schema")
        if any(expression for expression, _ in found):
            whole = self._alone([schema for schema, _ in schemas])
            self._count(inline_schema(whole))
            self._checks.append((whole, schemas[0][1]))
        return " & ".join(expression for expression, _ in found if expression)

    def _alone(self, schemas: list[Any]) -> Any:
        """The schema of what meets all of `schemas`."""
        whole = schemas[0] if len(schemas) == 1 else {"allOf": schemas} if schemas else True
        return standalone(whole, self._schema)

    def _text_rules(self, rule: str, expression: str) -> Iterator[str]:
        """A text that meets `expression`, "" for any, and the end of a value, which the text does not have in it."""
        before, control, behind = self._end.partition("<[")
        mark = self._tags.value_end.strip() or self._tags.value_end
        text = f"{expression or ANY_TEXT} & ~({ANY_TEXT} {literal(mark)} {ANY_TEXT})"
        # one lexeme with what stands behind it, for a text may end in what that begins with
        yield f"{rule}: {rule.upper()}" + (f" <[{behind}" if control else "")
        yield f"{rule.upper()}: ({text}) {before.strip()}"
