"""References of JSON schemas to places in themselves: JSON pointers in a fragment (RFC 6901)."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote

_INDEX = re.compile(r"0|[1-9][0-9]{0,5}", re.ASCII)


def pointer_of(ref: str) -> str | None:
    """The pointer in `ref`, such as "/$defs/name" of "#/$defs/name"; None if it is none into the document itself."""
    return unquote(ref[1:]) if ref == "#" or ref.startswith("#/") else None


def pointer_part(name: str) -> str:
    """`name` as a pointer has it."""
    return name.replace("~", "~0").replace("/", "~1")


def target_of(ref: str, root: Any) -> Any:
    """What is in `root` at `ref`, such as "#/$defs/name"; None if nothing is, or `ref` is of another form."""
    pointer = pointer_of(ref)
    if pointer is None:
        return None
    found = root
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and _INDEX.fullmatch(key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
