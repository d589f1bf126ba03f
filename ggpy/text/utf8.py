"""Text that may not be valid UTF-8.

Inside the tokenizers a text is a `str` in which every byte that is not part of valid UTF-8 is a lone surrogate, as the
`surrogateescape` error handler makes them: searching and slicing then work as they would on the bytes.
"""

import re
from collections.abc import Iterable

REPLACEMENT = "\ufffd"
_HIGHEST_CODE_POINT = 0x10FFFF
# Any well-shaped sequence is taken, overlong and surrogate code points too; a byte that starts none stands alone.
_SEQUENCE = re.compile(
    rb"[\x00-\x7f]+|[\xc0-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf7][\x80-\xbf]{3}|.", re.DOTALL
)
_LEAD_BITS = (0, 0x7F, 0x1F, 0x0F, 0x07)      # payload mask of the first byte, by length of the sequence


def escape(text: str | bytes) -> str:
    """`text` with every byte that is not valid UTF-8 as a lone surrogate."""
    if isinstance(text, str):
        if is_valid(text):
            return text
        text = text.encode("utf-8", "surrogatepass")
    return text.decode("utf-8", "surrogateescape")


def escape_spans(text: str | bytes, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Where `spans` of `text`, which are in ascending order, lie in escape(text)."""
    moved, read, length = [], 0, 0
    for start, end in spans:
        first = length + len(escape(text[read:start]))
        read, length = end, first + len(escape(text[start:end]))
        moved.append((first, length))
    return moved


def to_bytes(text: str) -> bytes:
    """The bytes behind an escaped text."""
    return text.encode("utf-8", "surrogateescape")


def is_valid(text: str) -> bool:
    """Whether `text` is free of surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def repair(text: str) -> str:
    """An escaped text as code points: overlong forms shortened, stray bytes replaced by U+FFFD.

    An encoded surrogate (ED A0 80 to ED BF BF) stays one, so the result may still not be encodable. This is what
    llama.cpp's unicode.cpp reads, except that a code point above 10FFFF, on which it aborts, becomes U+FFFD.
    """
    return "".join(map(_read_sequence, _SEQUENCE.findall(to_bytes(text))))


def _read_sequence(sequence: bytes) -> str:
    if sequence[0] < 0x80:
        return sequence.decode("ascii")
    if len(sequence) == 1:
        return REPLACEMENT
    code_point = sequence[0] & _LEAD_BITS[len(sequence)]
    for byte in sequence[1:]:
        code_point = code_point << 6 | byte & 0x3F
    return chr(code_point) if code_point <= _HIGHEST_CODE_POINT else REPLACEMENT


def split_by_lead_byte(text: str) -> list[str]:
    """The characters of an escaped text as a first byte announces their length, whatever bytes follow it."""
    data = to_bytes(text)
    characters, start = [], 0
    while start < len(data):
        end = start + _announced_length(data[start])
        characters.append(data[start:end].decode("utf-8", "surrogateescape"))
        start = end
    return characters


def _announced_length(lead: int) -> int:
    if lead < 0xC0:
        return 1
    return 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
