"""Bodies that clients pack, by Content-Encoding.

aiohttp would unpack them itself, but refuses some that are broken before a route, and so its dialect, is known.
"""

from __future__ import annotations

import zlib

from ggpy.errors import RequestError
from ggpy.server.errors import TooLargeError

ZLIB_BITS, GZIP_BITS, RAW_BITS = 15, 31, -15        # what zlib calls the three formats
FORMATS = {"gzip": GZIP_BITS, "x-gzip": GZIP_BITS, "deflate": ZLIB_BITS}


def unpacked(data: bytes, encoding: str, most: int) -> bytes:
    """What is in a body, by its Content-Encoding. Raises RequestError, TooLargeError for more than `most` bytes."""
    name = encoding.strip().lower()
    if name in ("", "identity") or not data:
        return data
    if name not in FORMATS:
        raise RequestError(f"the body cannot be read: its Content-Encoding is {encoding!r}, expected 'gzip', 'deflate' "
                           "or none")
    bits = FORMATS[name]
    if name == "deflate" and data[0] & 15 != zlib.DEFLATED:
        bits = RAW_BITS         # as some clients understand the name
    unpacker = zlib.decompressobj(bits)
    try:
        text = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise RequestError(f"the body cannot be read: it is no {name} ({error})") from error
    if len(text) > most:
        raise TooLargeError(f"the body unpacks to more than {most:,} bytes")
    if not unpacker.eof:
        raise RequestError(f"the body cannot be read: its {name} does not end within the {len(data):,} bytes that came")
    if unpacker.unused_data:
        raise RequestError(f"the body cannot be read: {len(unpacker.unused_data):,} bytes stand behind the end of its "
                           f"{name}, expected none")
    return text
