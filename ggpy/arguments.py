"""Arguments of the library, checked: an error names the argument, what was found and what is expected."""

import operator
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from ggpy.errors import ConfigError, RequestError


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raises ConfigError if `value` is none of `choices`."""
    if value not in choices:
        raise ConfigError(f"{name}={value!r:.80}: expected one of {', '.join(choices)}")


def whole_number(name: str, value: SupportsIndex, least: int) -> int:
    """`value` as a plain int. Raises ConfigError if it is none, or less than `least`."""
    number = _as_int(value)
    if number is None or number < least:
        raise ConfigError(f"{name}={value!r:.80}: expected a whole number of at least {least}")
    return number


def check_text(name: str, value: Any) -> None:
    """Raises RequestError if `value` is no text."""
    if not isinstance(value, str):
        raise RequestError(f"{name}={value!r:.80}: expected a text")


def text_list(name: str, values: Iterable[str]) -> list[str]:
    """`values` as a list. Raises RequestError for a text, which is a sequence of letters, and for what is no text."""
    if isinstance(values, str):
        raise RequestError(f"{name}={values!r:.80}: expected a list of texts; give one text as [text]")
    items = _as_list(values)
    if items is None:
        raise RequestError(f"{name}={values!r:.80}: expected a list of texts")
    for i, item in enumerate(items):
        check_text(f"{name}[{i}]", item)
    return items


def token_ids(name: str, ids: Iterable[SupportsIndex]) -> list[int]:
    """`ids` as plain ints. Raises RequestError for what is not a sequence of whole numbers."""
    is_text = isinstance(ids, str | bytes | bytearray)      # bytes are a sequence of numbers too
    items = None if is_text else _as_list(ids)
    if items is None:
        raise RequestError(f"{name}={ids!r:.80}: expected a sequence of token ids")
    tokens = []
    for i, item in enumerate(items):
        token = _as_int(item)
        if token is None:
            raise RequestError(f"{name}[{i}]={item!r:.80}: expected a token id, a whole number")
        tokens.append(token)
    return tokens


def _as_list(values: Any) -> list[Any] | None:
    """What `values` gives when it is iterated; None if it cannot be."""
    try:
        return list(values)
    except TypeError:
        return None


def _as_int(value: Any) -> int | None:
    """A whole number of any type, NumPy's too, as a plain int; None for anything else, such as 2.0 or "2"."""
    try:
        return operator.index(value)
    except TypeError:
        return None
