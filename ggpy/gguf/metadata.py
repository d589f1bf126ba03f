"""Metadata of a GGUF file: scanned at open, decoded at first use, and read through typed getters."""

import builtins
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar, overload

import numpy as np
import numpy.typing as npt

from ggpy.errors import GGUFError
from ggpy.gguf.cursor import Cursor
from ggpy.gguf.types import MAX_KEY_BYTES, VALUE_DTYPES, ValueType, shown

MAX_KEYS = 1 << 16
MAX_METADATA_BYTES = 1 << 28    # the largest vocabularies take 20 MB; bounds what decoding may allocate
MAX_ARRAY_DEPTH = 4
MIN_PAIR_BYTES = 8 + 1 + 4 + 1      # length and one byte of key, value type, one byte of value

D = TypeVar("D")


class _Missing(Enum):
    MISSING = 0


MISSING: Final = _Missing.MISSING


class StringArray(Sequence[str]):
    """Strings of a metadata array, decoded when asked for: one offset is kept per string, no Python object.

    Real vocabularies hold tokens that are not UTF-8. Their stray bytes become lone surrogates (the error handler
    "surrogateescape"), so `s.encode("utf-8", "surrogateescape")` gives the file's bytes back; `bytes(i)` does so
    at once.
    """

    def __init__(self, buffer: memoryview, offsets: npt.NDArray[np.int64]) -> None:
        self._buffer = buffer
        self._offsets = offsets     # (n + 1,); string i is buffer[offsets[i] + 8 : offsets[i + 1]]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def bytes(self, i: int) -> builtins.bytes:
        """The bytes of string `i` as they stand in the file; raises IndexError out of range."""
        n = len(self)
        if not -n <= i < n:
            raise IndexError(f"string {i} of an array of {n}")
        i %= n
        return bytes(self._buffer[int(self._offsets[i]) + 8 : int(self._offsets[i + 1])])

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self[j] for j in range(*i.indices(len(self)))]
        return self.bytes(i).decode("utf-8", "surrogateescape")

    def __iter__(self) -> Iterator[str]:
        return iter(self.tolist())

    def tolist(self) -> list[str]:
        """All strings, decoded in one pass."""
        base = int(self._offsets[0])
        raw = bytes(self._buffer[base : int(self._offsets[-1])])
        bounds = self._offsets - base
        starts, ends = (bounds[:-1] + 8).tolist(), bounds[1:].tolist()
        return [raw[a:b].decode("utf-8", "surrogateescape") for a, b in zip(starts, ends, strict=True)]

    def __repr__(self) -> str:
        return f"StringArray({len(self)} strings)"


@dataclass(frozen=True, slots=True)
class _Scalar:
    """Where a number, bool or string lies: bytes start to end."""

    type: ValueType
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Array:
    """Where the elements of an array lie, with what had to be found by walking over them."""

    element: ValueType
    count: int
    start: int
    strings: npt.NDArray[np.int64] | None = None
    arrays: "list[_Array] | None" = None


def _scan_type(cursor: Cursor, what: str) -> ValueType:
    offset = cursor.pos
    number = cursor.u32(f"type of {what}")
    if number > max(ValueType):
        raise cursor.error(f"type of {what}", offset, number, f"a value type from 0 to {max(ValueType):d}")
    return ValueType(number)


def _scan_array(cursor: Cursor, what: str, depth: int = 1) -> _Array:
    """Step over an array, checking all of it."""
    if depth > MAX_ARRAY_DEPTH:
        raise cursor.error(what, cursor.pos, f"arrays nested {depth} deep", f"at most {MAX_ARRAY_DEPTH}")
    element = _scan_type(cursor, f"elements of {what}")
    dtype = VALUE_DTYPES.get(element)
    if dtype is not None:
        count = cursor.count(f"number of elements of {what}", dtype.itemsize)
        start = cursor.skip(count * dtype.itemsize, what)
        if element is ValueType.BOOL:
            _check_bools(cursor, what, start, cursor.pos)
        return _Array(element, count, start)

    if element is ValueType.STRING:
        count = cursor.count(f"number of elements of {what}", 8)
        start = cursor.pos
        return _Array(element, count, start, strings=cursor.string_array(count, what))

    count = cursor.count(f"number of elements of {what}", 12, limit=cursor.nested_left)
    cursor.nested_left -= count
    start = cursor.pos
    return _Array(element, count, start, arrays=[_scan_array(cursor, f"{what}[{i}]", depth + 1) for i in range(count)])


def _check_bools(cursor: Cursor, what: str, start: int, end: int) -> None:
    raw = np.frombuffer(cursor.buffer[start:end], np.uint8)
    if raw.size and raw.max() > 1:
        i = int(np.argmax(raw > 1))
        raise cursor.error(f"bool in {what}", start + i, int(raw[i]), "0 or 1")


def _scan_value(cursor: Cursor, what: str) -> _Scalar | _Array:
    """Step over a value with its type, checking all of it."""
    kind = _scan_type(cursor, what)
    if kind is ValueType.ARRAY:
        return _scan_array(cursor, what)
    if kind is ValueType.STRING:
        return _Scalar(kind, *cursor.string(what))
    start = cursor.skip(VALUE_DTYPES[kind].itemsize, what)
    if kind is ValueType.BOOL:
        _check_bools(cursor, what, start, cursor.pos)
    return _Scalar(kind, start, cursor.pos)


def scan_metadata(cursor: Cursor, count: int) -> "Metadata":
    """Step over `count` key-value pairs, checking all of them; values are decoded later."""
    entries: dict[str, _Scalar | _Array] = {}
    for i in range(count):
        offset = cursor.pos
        key = cursor.name(f"key {i}", MAX_KEY_BYTES)
        if key in entries:
            raise cursor.error(f"key {i}", offset, f"{shown(key)} again", "each key once")
        entries[key] = _scan_value(cursor, f"value of {shown(key)}")
        if cursor.pos > MAX_METADATA_BYTES:
            found = f"metadata that reaches byte {cursor.pos:,}"
            raise cursor.error(f"value of {shown(key)}", offset, found, f"at most {MAX_METADATA_BYTES:,} bytes of it")
    return Metadata(cursor.path, cursor.buffer, entries)


class Metadata(Mapping[str, Any]):
    """Key-value pairs of a file in file order, each decoded at first access.

    Values are int, float, bool and str; read-only arrays of numbers (little-endian, not copied, hence perhaps
    unaligned) and bools; `StringArray`; and lists for arrays of arrays. Stray bytes in strings become lone
    surrogates, as in `StringArray`.
    """

    def __init__(self, path: Path, buffer: memoryview, entries: dict[str, _Scalar | _Array]) -> None:
        self.path = path
        self._buffer = buffer
        self._entries = entries
        self._values: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            self._values[key] = self._decode(self._entries[key])
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __repr__(self) -> str:
        return f"Metadata({self.path}, {len(self)} keys)"

    def value_type(self, key: str) -> ValueType:
        """Type of a scalar, or of the elements of an array: what `GGUFWriter.add` takes to write the same."""
        entry = self._entries[key]
        return entry.type if isinstance(entry, _Scalar) else entry.element

    def _decode(self, entry: _Scalar | _Array) -> Any:
        if isinstance(entry, _Scalar):
            raw = self._buffer[entry.start : entry.end]
            if entry.type is ValueType.STRING:
                return str(raw, "utf-8", "surrogateescape")
            return np.frombuffer(raw, VALUE_DTYPES[entry.type])[0].item()
        if entry.strings is not None:
            return StringArray(self._buffer, entry.strings)
        if entry.arrays is not None:
            return [self._decode(a) for a in entry.arrays]
        dtype = VALUE_DTYPES[entry.element]
        return np.frombuffer(self._buffer[entry.start : entry.start + entry.count * dtype.itemsize], dtype)

    def _typed(self, key: str, types: tuple[type, ...], expected: str, default: Any) -> Any:
        if key not in self._entries:
            if default is MISSING:
                raise GGUFError(f"{self.path}: key {shown(key)} is missing, expected {expected}")
            return default
        value = self[key]
        # bool is an int to isinstance, and never one to a model
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            entry = self._entries[key]
            kind = self.value_type(key).name
            found = kind if isinstance(entry, _Scalar) else f"an array of {entry.count:,} {kind}"
            where = f"{self.path}: key {shown(key)} at byte {entry.start:,}"
            raise GGUFError(f"{where}: found {found}, expected {expected}")
        return value

    @overload
    def get_int(self, key: str) -> int: ...
    @overload
    def get_int(self, key: str, default: D) -> int | D: ...
    def get_int(self, key: str, default: Any = MISSING) -> Any:
        """An integer of any width; raises GGUFError on another type, or when missing without a default."""
        return self._typed(key, (int,), "an integer", default)

    @overload
    def get_float(self, key: str) -> float: ...
    @overload
    def get_float(self, key: str, default: D) -> float | D: ...
    def get_float(self, key: str, default: Any = MISSING) -> Any:
        """A float, or an integer made one; raises GGUFError on another type, or when missing without a default."""
        value = self._typed(key, (float, int), "a float", default)
        return float(value) if key in self._entries else value

    @overload
    def get_str(self, key: str) -> str: ...
    @overload
    def get_str(self, key: str, default: D) -> str | D: ...
    def get_str(self, key: str, default: Any = MISSING) -> Any:
        """A string; raises GGUFError on another type, or when missing without a default."""
        return self._typed(key, (str,), "a string", default)

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: D) -> bool | D: ...
    def get_bool(self, key: str, default: Any = MISSING) -> Any:
        """A bool; raises GGUFError on another type, or when missing without a default."""
        return self._typed(key, (bool,), "a bool", default)

    @overload
    def get_list(self, key: str) -> list[Any]: ...
    @overload
    def get_list(self, key: str, default: D) -> list[Any] | D: ...
    def get_list(self, key: str, default: Any = MISSING) -> Any:
        """An array as a list of Python values; raises GGUFError on a scalar, or when missing without a default."""
        value = self._typed(key, (np.ndarray, StringArray, list), "an array", default)
        return value.tolist() if isinstance(value, np.ndarray | StringArray) else value
