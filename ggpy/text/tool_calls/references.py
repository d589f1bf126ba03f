"""References of JSON schemas to places in themselves."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote


def target_of(ref: str, root: Any) -> Any:
    """What is in `root` at `ref`, such as "#/$defs/name"; None if nothing is."""
    found = root
    for part in unquote(ref).removeprefix("#").split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and key.isdecimal() and len(key) < 6 and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found
