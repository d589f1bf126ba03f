"""JSON schemas: checked keyword by keyword, and reduced to what decides what may be generated.

llguidance ignores keywords that it does not know, and those that a draft of the standard has not got. Nothing may be
dropped without a word, so a schema is read here first: annotations are left out, whatever else cannot be enforced is an
error that names its path, and what is left is read in one way whatever `$schema` says.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable
from typing import Any

from ggpy.errors import GrammarError, printable
from ggpy.text.json_pointer import pointer_of, pointer_part

MAX_SOURCE = 1 << 20        # characters
MAX_NODES = 20_000          # schemas in a schema
MAX_DEPTH = 100             # levels of JSON; llguidance reads 127
MAX_REF_DEPTH = 4_000       # levels of all schemas that are referred to: each may stand on the stack once
MAX_VALUE = 20_000          # characters of a text that is compared
MAX_EXACT = 2**53           # integers up to this are compared exactly

TYPES = ("null", "boolean", "integer", "number", "string", "array", "object")
FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
ANNOTATIONS = frozenset((
    "title", "description", "default", "examples", "example", "$comment", "$schema", "$anchor", "deprecated",
    "readOnly", "writeOnly", "contentMediaType", "contentEncoding", "contentSchema", "discriminator", "externalDocs",
    "xml"))
UNSUPPORTED = frozenset((
    "not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames",
    "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef",
    "$dynamicAnchor", "$recursiveRef", "$recursiveAnchor", "$vocabulary"))
# what they are when they say nothing
NEUTRAL: dict[str, Any] = {"uniqueItems": False, "nullable": False, "minContains": 1, "dependencies": {},
                           "dependentRequired": {}, "dependentSchemas": {}, "unevaluatedProperties": True,
                           "unevaluatedItems": True, "propertyNames": True}


def canonical(schema: Any, root: str = "$") -> Any:
    """`schema` without annotations.

    Raises GrammarError, naming path and keyword from `root` on, if it is no schema or cannot be enforced as it stands.
    """
    return _Reader(root).read_document(schema)


def parse_json(source: str, root: str) -> Any:
    """The value in `source`. Raises GrammarError."""
    if len(source) > MAX_SOURCE:
        raise GrammarError(f"{root}: the JSON has {len(source):,} characters, expected {MAX_SOURCE:,} at most")
    try:
        return json.loads(source, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise GrammarError(f"{root}: line {error.lineno}, column {error.colno}: not JSON: {error.msg}") from error
    except RecursionError:
        raise GrammarError(f"{root}: the JSON is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:         # a constant, or an integer of too many digits
        raise GrammarError(f"{root}: not JSON: {error}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def shown_json(value: Any) -> str:
    """The beginning of `value` as JSON."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (RecursionError, ValueError):
        return f"a {type(value).__name__} too large to write"
    return printable(text if len(text) <= 60 else text[:57] + "...")


def member(path: str, name: str) -> str:
    """The path of member `name`."""
    if re.fullmatch(r"[\w$-]{1,60}", name):
        return f"{path}.{name}"
    return f"{path}[{shown_json(name)}]"


class _Reader:
    """Reads one document; remembers which places are schemas, and which are referred to."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._id = ""
        self._depths: dict[str, int] = {}               # by JSON pointer: levels below it
        self._refs: dict[str, tuple[str, str]] = {}     # by JSON pointer: path and text of a reference to it

    def read_document(self, schema: Any) -> Any:
        if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
            self._id = schema["$id"].rstrip("#")
        result = self._schema(schema, self._root, "", 1)
        if isinstance(result, dict):
            result.pop("$id", None)
        for pointer, (path, text) in self._refs.items():
            if pointer not in self._depths:
                raise GrammarError(f"{path}: there is no schema at {text!r:.80}")
        depth = sum(self._depths[pointer] for pointer in self._refs)
        if depth > MAX_REF_DEPTH:
            raise GrammarError(f"{self._root}: the schemas that are referred to have {depth:,} levels together, "
                               f"expected {MAX_REF_DEPTH:,} at most")
        return result

    def _schema(self, schema: Any, path: str, pointer: str, level: int) -> Any:
        """`schema` without what does not matter; `level` is that of the JSON."""
        if isinstance(schema, bool):
            self._enter(pointer, path, level)
            return schema
        if not isinstance(schema, dict):
            raise GrammarError(f"{path}: expected a schema, which is an object or a boolean, found "
                               f"{shown_json(schema)}")
        self._enter(pointer, path, level)
        result: dict[str, Any] = {}
        for keyword, value in schema.items():
            at = member(path, keyword)
            place = f"{pointer}/{keyword}"
            if keyword in READERS:
                READERS[keyword](self, value, at, place, level + 1)
                result[keyword] = self._inner(keyword, value, at, place, level + 1)
            elif not self._may_be_left_out(keyword, value, pointer):
                raise GrammarError(f"{at}: {_why_not(keyword)}")
        if schema.get("unevaluatedProperties") is True:     # a way to say that there may be any others
            result.setdefault("additionalProperties", True)
        _check_format(result, path)
        return result

    def _enter(self, pointer: str, path: str, level: int) -> None:
        if level > MAX_DEPTH:
            raise GrammarError(f"{path}: nested deeper than {MAX_DEPTH} levels of JSON")
        if len(self._depths) >= MAX_NODES:
            raise GrammarError(f"{path}: there are more than {MAX_NODES:,} schemas in this one")
        self._depths[pointer] = 1
        above = pointer
        depth = 1
        while "/" in above and depth < MAX_DEPTH:       # those around it are as deep at least
            above = above[: above.rindex("/")]
            depth += 1
            if above in self._depths:
                if self._depths[above] >= depth:
                    break
                self._depths[above] = depth

    @staticmethod
    def _may_be_left_out(keyword: str, value: Any, pointer: str) -> bool:
        if keyword in ("$id", "id"):
            return isinstance(value, str) and (pointer == "" or keyword == "id")
        if keyword.startswith("x-"):
            return keyword != "x-guidance"
        return keyword in ANNOTATIONS or (keyword in NEUTRAL and value == NEUTRAL[keyword])

    def _inner(self, keyword: str, value: Any, path: str, pointer: str, level: int) -> Any:
        """`value` with the schemas in it read."""
        if keyword in MAPS:
            return {name: self._schema(each, member(path, name), f"{pointer}/{pointer_part(name)}", level + 1)
                    for name, each in value.items()}
        if keyword in LISTS or (keyword == "items" and isinstance(value, list)):
            return [self._schema(each, f"{path}[{i}]", f"{pointer}/{i}", level + 1) for i, each in enumerate(value)]
        if keyword in SCHEMAS:
            return self._schema(value, path, pointer, level)
        if keyword == "$ref":
            return self._target(value)
        return value

    def _target(self, ref: str) -> str:
        return ref[len(self._id):] if self._id and ref.startswith(self._id + "#") else ref

    def check_ref(self, value: Any, path: str, pointer: str, level: int) -> None:
        _string(self, value, path, pointer, level)
        pointed = pointer_of(self._target(value))
        if pointed is None:
            raise GrammarError(f"{path}: expected a place in this schema like '#/$defs/name', found "
                               f"{shown_json(value)}; others are never fetched")
        self._refs.setdefault(pointed, (path, value))

    def check_plain(self, value: Any, path: str, pointer: str, level: int) -> None:
        """`value` is compared, not read as a schema."""
        if level > MAX_DEPTH:
            raise GrammarError(f"{path}: nested deeper than {MAX_DEPTH} levels of JSON")
        if isinstance(value, dict):
            for name, each in value.items():
                self.check_plain(each, member(path, name), "", level + 1)
        elif isinstance(value, list):
            for i, each in enumerate(value):
                self.check_plain(each, f"{path}[{i}]", "", level + 1)
        elif isinstance(value, str):
            if len(value) > MAX_VALUE:
                raise GrammarError(f"{path}: the text has {len(value):,} characters, expected {MAX_VALUE:,} at most")
        elif not isinstance(value, bool | None) and not (_is_finite(value) and _is_exact(value)):
            raise GrammarError(f"{path}: {shown_json(value)} cannot be compared exactly; expected a number up to "
                               f"{MAX_EXACT:,}")


def _is_exact(value: float) -> bool:
    return isinstance(value, float) or abs(value) <= MAX_EXACT


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _why_not(keyword: str) -> str:
    if keyword == "x-guidance":
        return "settings of the grammar compiler are not taken from a schema"
    if keyword == "$id":
        return "is supported at the root alone"
    if keyword == "nullable":
        return 'expected false; write "type": [..., "null"] for what may be null'
    if keyword in UNSUPPORTED:
        return "cannot be enforced, and ignoring it would let through what it forbids; leave it out"
    near = difflib.get_close_matches(keyword[:60], READERS, 1, 0.75)
    return "is no keyword of JSON schemas; " + (f"did you mean {near[0]!r}?" if near else "leave it out")


def _check_format(schema: dict[str, Any], path: str) -> None:
    """Leave out a format that says nothing about strings; refuse one that is not known."""
    if "format" not in schema:
        return
    types = schema.get("type", "string")
    if "string" not in ([types] if isinstance(types, str) else types):
        del schema["format"]
    elif schema["format"] not in FORMATS:
        raise GrammarError(f"{path}.format: expected one of {', '.join(FORMATS)}, found {shown_json(schema['format'])}")


Check = Callable[[_Reader, Any, str, str, int], None]


def _expect(what: str, is_right: Callable[[Any], bool]) -> Check:
    def check(reader: _Reader, value: Any, path: str, pointer: str, level: int) -> None:
        if not is_right(value):
            raise GrammarError(f"{path}: expected {what}, found {shown_json(value)}")

    return check


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def _is_type(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


def _non_empty_list(reader: _Reader, value: Any, path: str, pointer: str, level: int) -> None:
    _list(reader, value, path, pointer, level)
    if not value:
        raise GrammarError(f"{path}: expected one entry at least, found none")


def _enum(reader: _Reader, value: Any, path: str, pointer: str, level: int) -> None:
    _non_empty_list(reader, value, path, pointer, level)
    reader.check_plain(value, path, pointer, level)


def _schema_or_list(reader: _Reader, value: Any, path: str, pointer: str, level: int) -> None:
    """Of `items`; a list is how old drafts write `prefixItems`."""


_list = _expect("a list", lambda value: isinstance(value, list))
_map = _expect("an object", lambda value: isinstance(value, dict))
_string = _expect("a string", lambda value: isinstance(value, str))
_number = _expect("a number", _is_number)
_count = _expect("a whole number, 0 or more", _is_count)
_positive = _expect("a number above 0", lambda value: _is_number(value) and value > 0)
_limit = _expect("a number", lambda value: isinstance(value, bool) or _is_number(value))

READERS: dict[str, Check] = {
    "type": _expect(f"one of {', '.join(TYPES)}, or a list of them", _is_type),
    "enum": _enum, "const": _Reader.check_plain, "$ref": _Reader.check_ref,
    **dict.fromkeys(("properties", "patternProperties", "$defs", "definitions"), _map),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _non_empty_list), "prefixItems": _list,
    **dict.fromkeys(("items", "additionalItems", "additionalProperties"), _schema_or_list),
    "required": _expect("a list of strings", lambda value: isinstance(value, list)
                        and all(isinstance(name, str) for name in value)),
    **dict.fromkeys(("minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength"), _count),
    "minimum": _number, "maximum": _number, "exclusiveMinimum": _limit, "exclusiveMaximum": _limit,
    "multipleOf": _positive, "pattern": _string, "format": _string,
}
MAPS = ("properties", "patternProperties", "$defs", "definitions")
LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
SCHEMAS = ("items", "additionalItems", "additionalProperties")
