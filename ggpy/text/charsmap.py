"""SentencePiece's compiled normalization rules (`precompiled_charsmap`): the longest known prefix is replaced.

The rules are a double array whose transitions are XORed (S. Kanda, "Space- and Time-Efficient String Dictionaries",
2018), followed by the replacements as zero-terminated strings. A 32-bit unit holds the base of its children in bits
10-30 (times 256 if bit 9 is set), whether a value hangs below it in bit 8, and its own byte in bits 0-7 and 31.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ggpy.errors import TokenizerError
from ggpy.text import metadata as md
from ggpy.text import utf8

_KEY = md.PREFIX + "precompiled_charsmap"
_HEADER_BYTES = 4       # the size of the double array in bytes


class CharsMap:
    """Normalizes text; user-defined tokens pass unchanged. Without rules everything does."""

    def __init__(self, data: bytes | None, user_defined: list[str]) -> None:
        self._units: list[int] = []
        self._replacements = b""
        if data is not None:
            size = int.from_bytes(data[:_HEADER_BYTES], "little")
            if len(data) <= _HEADER_BYTES or size + _HEADER_BYTES >= len(data):
                raise TokenizerError(
                    f"{_KEY}: expected 4 bytes, rules of {size:,} bytes and their replacements, "
                    f"found {len(data):,} bytes in all"
                )
            self._units = np.frombuffer(data, "<u4", size // 4, _HEADER_BYTES).tolist()
            self._replacements = data[_HEADER_BYTES + size:]
        self._user_defined: defaultdict[str, list[str]] = defaultdict(list)      # by first character, longest first
        for token in sorted(user_defined, key=len, reverse=True):
            self._user_defined[token[0]].append(token)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], user_defined: list[str]) -> "CharsMap":
        """The rules of `metadata`, if it has any. Raises TokenizerError if they are cut short."""
        return cls(md.read_bytes(metadata, _KEY), user_defined)

    def normalize(self, text: str) -> str:
        """An escaped text after the rules; a stray byte becomes U+FFFD, which the rules do not see."""
        if not self._units:
            return "".join(map(_replace_stray, text))
        out, start = [], 0
        while start < len(text):
            candidates = self._user_defined.get(text[start], ())
            token = next((token for token in candidates if text.startswith(token, start)), None)
            if token:
                out.append(token)
                start += len(token)
                continue
            replacement, length = self._longest_prefix(text, start)
            out.append(replacement)
            start += length
        return "".join(out)

    def _longest_prefix(self, text: str, start: int) -> tuple[str, int]:
        """What stands for the text at `start`, and how many characters it replaces."""
        found, length = _replace_stray(text[start]), 1
        node = self._base(0)
        for end in range(start, len(text)):
            for byte in utf8.to_bytes(text[end]):
                node ^= byte
                unit = self._unit(node)
                if not byte or unit & 0x800000FF != byte:
                    return found, length
                node ^= self._base(node)
            if unit >> 8 & 1:
                found, length = self._replacement(self._unit(node) & 0x7FFFFFFF), end - start + 1
        return found, length

    def _unit(self, index: int) -> int:
        if index >= len(self._units):
            raise TokenizerError(f"{_KEY}: expected links below {len(self._units):,}, found one to {index:,}")
        return self._units[index]

    def _base(self, index: int) -> int:
        unit = self._unit(index)
        return (unit >> 10) << ((unit & 1 << 9) >> 6)

    def _replacement(self, at: int) -> str:
        end = self._replacements.find(b"\0", at)
        if end < 0:
            raise TokenizerError(
                f"{_KEY}: expected a replacement that ends within {len(self._replacements):,} bytes, "
                f"found one at {at:,} that does not"
            )
        return self._replacements[at:end].decode("utf-8", "replace")


def _replace_stray(char: str) -> str:
    return utf8.REPLACEMENT if "\ud800" <= char <= "\udfff" else char
