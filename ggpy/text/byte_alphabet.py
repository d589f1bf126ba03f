"""GPT-2's byte alphabet: each byte as one printable character.

Bytes that print in Latin-1 stand for themselves, the other 68 are U+0100 and up in byte order.
"""

_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]

_CHAR_OF_BYTE = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(0x100 + i) for i, byte in enumerate(_OTHERS)}
_ENCODE = {byte: char for byte, char in _CHAR_OF_BYTE.items() if ord(char) != byte}
# Latin-1 characters outside the alphabet are sent out of Latin-1, so that encoding shows them up.
_DECODE = dict.fromkeys(_OTHERS, "\uffff") | {ord(char): chr(byte) for byte, char in _CHAR_OF_BYTE.items()}


def to_alphabet(data: bytes) -> str:
    """`data` spelled in the byte alphabet."""
    return data.decode("latin-1").translate(_ENCODE)


def from_alphabet(text: str) -> bytes:
    """The bytes that `text` spells.

    A character outside the alphabet reads as "[UNK_BYTE_0x<its UTF-8 in hex><text>]", as llama.cpp has it.
    """
    try:
        return text.translate(_DECODE).encode("latin-1")
    except UnicodeEncodeError:
        return b"".join(map(_decode_char, text, [text] * len(text)))


def _decode_char(char: str, text: str) -> bytes:
    byte = char.translate(_DECODE)
    if byte <= "\xff":
        return byte.encode("latin-1")
    hexadecimal = char.encode("utf-8", "surrogateescape").hex()
    return f"[UNK_BYTE_0x{hexadecimal}{text}]".encode("utf-8", "surrogateescape")
