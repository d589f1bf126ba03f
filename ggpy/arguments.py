"""Arguments of the library, checked: an error names the argument, what was found and what is expected."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from ggpy.errors import ConfigError, RequestError, shown


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises ConfigError if `value` is not one of `choices`."""
    if value not in choices:
        raise ConfigError(f"{name}={shown(value)}: expected one of {', '.join(choices)}")


def whole_number(name: str, value: SupportsIndex, least: int) -> int:
    """`value` as an int. Raises ConfigError if it is not an integer, or less than `least`."""
    number = _as_int(value)
    if number is None or number < least:
        raise ConfigError(f"{name}={shown(value)}: expected a whole number of at least {least}")
    return number


def check_text(name: str, value: Any) -> None:
    """Raises RequestError if `value` is not a string."""
    if not isinstance(value, str):
        raise RequestError(f"{name}={shown(value)}: expected a string")


def text_list(name: str, values: Iterable[str]) -> list[str]:
    """`values` as a list. Raises RequestError if it is a single string, or if an item is not a string."""
    if isinstance(values, str):
        raise RequestError(f"{name}={shown(values)}: expected a list of strings; give a single one as [text]")
    items = _as_list(values)
    if items is None:
        raise RequestError(f"{name}={shown(values)}: expected a list of strings")
    for i, item in enumerate(items):
        check_text(f"{name}[{i}]", item)
    return items


def token_ids(name: str, ids: Iterable[SupportsIndex], expected: str = "a sequence of token ids") -> list[int]:
    """`ids` as a list of int. Raises RequestError, which says what is `expected`, if it is not a sequence of
    integers."""
    is_text = isinstance(ids, str | bytes | bytearray)      # bytes are a sequence of numbers too
    items = None if is_text else _as_list(ids)
    if items is None:
        raise RequestError(f"{name}={shown(ids)}: expected {expected}")
    tokens = []
    for i, item in enumerate(items):
        token = _as_int(item)
        if token is None:
            raise RequestError(f"{name}[{i}]={shown(item)}: expected a token id, a whole number")
        tokens.append(token)
    return tokens


def _as_list(values: Any) -> list[Any] | None:
    """The items of `values`; None if it is not iterable."""
    try:
        return list(values)
    except TypeError:
        return None


def _as_int(value: Any) -> int | None:
    """An integer of any type, NumPy's too, as an int; None for any other value, such as 2.0 or "2"."""
    try:
        return operator.index(value)
    except TypeError:
        return None
