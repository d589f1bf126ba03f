"""Reads the JSON that clients send; whatever is wrong with it becomes an error that names the field."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, overload

import msgspec
from aiohttp import web

from ggpy.errors import RequestError, shown
from ggpy.server.errors import FieldError, TooLargeError
from ggpy.server.web.lanes import body_bytes
from ggpy.server.web.packed import unpacked
from ggpy.server.web.patience import patience

T = TypeVar("T")

NAMES: dict[type, str] = {bool: "a boolean", str: "a string", dict: "an object", list: "an array",
                          int: "a whole number", float: "a number"}


async def read_json(request: web.Request) -> Any:
    """The JSON value in the body; None if the body is empty. Raises RequestError, and TooLargeError."""
    try:
        async with patience(request):
            data = await request.read()
        if encoding := request.headers.get("Content-Encoding"):
            data = await asyncio.to_thread(unpacked, data, encoding, request.app._client_max_size)
    except TimeoutError as error:
        raise RequestError("the body did not arrive in time; --timeout says how long this server waits") from error
    except (web.HTTPRequestEntityTooLarge, TooLargeError) as error:
        raise TooLargeError(f"the body is larger than the {request.app._client_max_size:,} bytes that this server "
                            "reads; send less, or start it with a larger --max-body-size") from error
    body_bytes.set(len(data))
    if not data.strip():
        return None
    try:
        return msgspec.json.decode(data)
    except RecursionError as error:
        raise RequestError("the body is not usable: its JSON is nested too deeply") from error
    except (msgspec.DecodeError, ValueError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from error


async def read_fields(request: web.Request) -> Fields:
    """The JSON object in the body; an empty body is an empty object. Raises RequestError, and TooLargeError."""
    value = await read_json(request)
    if value is not None and not isinstance(value, dict):
        raise RequestError(f"the body is {named(value)}, expected a JSON object")
    return Fields(value or {})


def named(value: object) -> str:
    """What kind of JSON value it is, with an article."""
    return "null" if value is None else next(name for kind, name in NAMES.items() if isinstance(value, kind))


class Fields:
    """An object that a client sent. A field that is null is absent; of several names the first that is there counts.

    `path` stands in front of the names in errors. All methods raise FieldError.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self.values = values
        self.path = path

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def get(self, *names: str) -> Any:
        """The value as it stands; None if it is absent."""
        return self._find(names)[1]

    def error(self, name: str, problem: str) -> FieldError:
        """That `problem` is wrong with field `name`."""
        return FieldError(f"{self.path}{name}", problem)

    def missing(self, name: str) -> FieldError:
        return self.error(name, "it is missing")

    @overload
    def boolean(self, *names: str) -> bool | None: ...
    @overload
    def boolean(self, *names: str, default: bool) -> bool: ...
    def boolean(self, *names: str, default: bool | None = None) -> bool | None:
        return self._typed(names, bool, default)

    @overload
    def text(self, *names: str) -> str | None: ...
    @overload
    def text(self, *names: str, default: str) -> str: ...
    def text(self, *names: str, default: str | None = None) -> str | None:
        return self._typed(names, str, default)

    @overload
    def integer(self, *names: str, least: int | None = None, most: int | None = None) -> int | None: ...
    @overload
    def integer(self, *names: str, default: int, least: int | None = None, most: int | None = None) -> int: ...
    def integer(self, *names: str, default: int | None = None, least: int | None = None,
                most: int | None = None) -> int | None:
        """A whole number, also one written 5.0, within its limits."""
        name, value = self._find(names)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(name, int, value)
        low, high = -(2**63) if least is None else least, 2**63 - 1 if most is None else most
        if not low <= value <= high:
            raise self.error(name, f"Value must be between {low} and {high}, found {shown(value)}")
        return value

    @overload
    def number(self, *names: str) -> float | None: ...
    @overload
    def number(self, *names: str, default: float) -> float: ...
    def number(self, *names: str, default: float | None = None) -> float | None:
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._wrong(name, float, value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise self.error(name, "expected a finite number")
        return number

    def texts(self, *names: str) -> list[str]:
        """A string, or an array of them; [] if it is absent."""
        name, value = self._find(names)
        found = [value] if isinstance(value, str) else value or []
        if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
            raise self.error(name, "expected a string or an array of strings")
        return found

    def array(self, *names: str) -> list[Any] | None:
        return self._typed(names, list, None)

    def mapping(self, *names: str) -> dict[str, Any] | None:
        return self._typed(names, dict, None)

    def nested(self, name: str) -> Fields:
        """The object in field `name`, empty if it is absent."""
        return Fields(self.mapping(name) or {}, f"{self.path}{name}.")

    def objects(self, name: str) -> list[Fields]:
        """The objects in array `name`; [] if it is absent."""
        items = self.array(name) or []
        for i, item in enumerate(items):
            if not isinstance(item, dict):
                raise self.error(f"{name}[{i}]", f"expected an object, found {named(item)}")
        return [Fields(item, f"{self.path}{name}[{i}].") for i, item in enumerate(items)]

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of `choices`."""
        value = self.text(name, default=default)
        if value not in choices:
            raise self.error(name, f"expected one of {', '.join(choices)}, found {shown(value)}")
        return value

    def _find(self, names: Sequence[str]) -> tuple[str, Any]:
        for name in names:
            if (value := self.values.get(name)) is not None:
                return name, value
        return names[0], None

    def _typed(self, names: Sequence[str], kind: type[T], default: T | None) -> T | None:
        name, value = self._find(names)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self._wrong(name, kind, value)
        return value

    def _wrong(self, name: str, kind: type, value: object) -> FieldError:
        return self.error(name, f"expected {NAMES[kind]}, found {named(value)}")
