"""Bounded reading of a GGUF header: nothing is read, walked or allocated before its size is checked."""

import struct
from array import array
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ggpy.errors import GGUFError

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

# Strings of arrays and nested arrays are walked one by one. The largest vocabularies have 0.5 million
# strings with merges; the bound keeps a hostile file of any size to about a second and 64 MB.
MAX_STRINGS = 1 << 23
MAX_NESTED_ARRAYS = 1 << 16


class Cursor:
    """A position in a file's bytes that moves forward only by what the file has.

    `what` in every method names the field that is being read, for messages.
    """

    def __init__(self, path: Path, buffer: memoryview) -> None:
        self.path = path
        self.buffer = buffer
        self.size = len(buffer)
        self.pos = 0
        self.strings_left = MAX_STRINGS
        self.nested_left = MAX_NESTED_ARRAYS

    def error(self, what: str, offset: int, found: object, expected: str) -> GGUFError:
        """The error to raise for the field `what` at byte `offset`."""
        return GGUFError(f"{self.path}: {what} at byte {offset:,}: found {found}, expected {expected}")

    def need(self, n_bytes: int, what: str, offset: int | None = None) -> None:
        """Raise GGUFError unless `n_bytes` more bytes are there."""
        if n_bytes > self.size - self.pos:
            found = f"{n_bytes:,} bytes to follow"
            expected = f"at most {self.size - self.pos:,}, the rest of the file; is the download complete?"
            raise self.error(what, self.pos if offset is None else offset, found, expected)

    def skip(self, n_bytes: int, what: str) -> int:
        """Step over `n_bytes` and return where they began."""
        self.need(n_bytes, what)
        start = self.pos
        self.pos += n_bytes
        return start

    def u8(self, what: str) -> int:
        """Read one byte."""
        return self.buffer[self.skip(1, what)]

    def u32(self, what: str) -> int:
        """Read a 32-bit unsigned integer."""
        value: int = U32.unpack_from(self.buffer, self.skip(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        """Read a 64-bit unsigned integer."""
        value: int = U64.unpack_from(self.buffer, self.skip(8, what))[0]
        return value

    def count(self, what: str, item_bytes: int, limit: int | None = None) -> int:
        """Read a 64-bit count of items of at least `item_bytes` each; raises unless that many can follow."""
        offset = self.pos
        count = self.u64(what)
        if limit is not None and count > limit:
            raise self.error(what, offset, f"{count:,}", f"at most {limit:,}")
        if count * item_bytes > self.size - self.pos:
            room = (self.size - self.pos) // item_bytes
            expected = f"at most {room:,}, the room that the rest of the file has; is the download complete?"
            raise self.error(what, offset, f"{count:,}", expected)
        return count

    def string(self, what: str) -> tuple[int, int]:
        """Step over a string and return where its bytes begin and end."""
        n_bytes = self.count(f"length of {what}", 1)
        start = self.skip(n_bytes, what)
        return start, self.pos

    def name(self, what: str, max_bytes: int) -> str:
        """Read a key or tensor name: 1 to `max_bytes` bytes of UTF-8 without NUL."""
        offset = self.pos
        start, end = self.string(what)
        if not 0 < end - start <= max_bytes:
            raise self.error(what, offset, f"a name of {end - start:,} bytes", f"1 to {max_bytes:,} bytes")
        raw = bytes(self.buffer[start:end])
        try:
            name = raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.error(what, offset, f"bytes that are no UTF-8 ({e.reason})", "a name in UTF-8") from None
        if "\0" in name:
            raise self.error(what, offset, "a NUL character", "a name without one")
        return name

    def string_array(self, count: int, what: str) -> npt.NDArray[np.int64]:
        """Step over `count` strings and return their offsets (count + 1,).

        String i has its 8 length bytes at offsets[i] and ends at offsets[i + 1].
        """
        if count > self.strings_left:
            raise self.error(what, self.pos, f"{count:,} strings", f"at most {MAX_STRINGS:,} in one file")
        self.strings_left -= count
        offsets = array("q")
        append, unpack, buffer, pos = offsets.append, U64.unpack_from, self.buffer, self.pos
        try:
            for _ in range(count):
                append(pos)
                pos += 8 + unpack(buffer, pos)[0]
            append(pos)
        except (struct.error, OverflowError):   # walked out of the file: reported below
            pos = self.size + 1
        if pos > self.size:
            self._fail_in_string(np.frombuffer(offsets, np.int64), count, what)
        self.pos = pos
        return np.frombuffer(offsets, np.int64)

    def _fail_in_string(self, offsets: npt.NDArray[np.int64], count: int, what: str) -> None:
        """Raise for the first of the walked strings that leaves the file."""
        i = int(np.searchsorted(offsets[:count], self.size, side="right")) - 1     # last to begin inside
        self.pos = int(offsets[i])
        self.string(f"{what}[{i}]")
