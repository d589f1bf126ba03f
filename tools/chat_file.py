"""Conversations in files."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path
from typing import Any, TypedDict

from ggpy.errors import GgpyError

FORMAT = "ggpy conversation 1"
ERRORS = "surrogatepass"        # what was typed or piped in may not be UTF-8; each half of a pair is kept as it is
ROLES = ("user", "assistant")


class Saved(TypedDict):
    """What a file holds besides its format."""

    model: str
    system: str
    settings: dict[str, Any]            # sampling parameters that the user has changed
    messages: list[dict[str, str]]      # from user and assistant in turn


def save(path: Path, saved: Saved) -> None:
    """Write `path` whole or not at all. Raises GgpyError if it holds something else or cannot be written."""
    if path.exists():
        try:
            load(path)
        except GgpyError as error:
            raise GgpyError(f"{path} exists and is no conversation; choose another name") from error
    text = json.dumps({"format": FORMAT, **saved}, ensure_ascii=False, indent=1) + "\n"
    try:
        _replace(Path(os.path.realpath(path)), text)
    except (OSError, ValueError) as error:          # ValueError: the name cannot be one
        raise GgpyError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from error


def _replace(path: Path, text: str) -> None:
    """Give `path`, no link, a new content and the permissions that it had; a new file is its user's alone."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with open(handle, "w", encoding="utf-8", errors=ERRORS) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            os.chmod(temporary, stat.S_IMODE(path.stat().st_mode))
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: Path) -> Saved:
    """Read what `save` wrote. Raises GgpyError that says what is wrong with the file."""
    try:
        text = path.read_text(encoding="utf-8", errors=ERRORS)
    except UnicodeDecodeError as error:
        raise GgpyError(f"{path} is no saved conversation: it is not text in UTF-8") from error
    except (OSError, ValueError) as error:
        raise GgpyError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:       # ValueError: also a number of thousands of digits
        raise GgpyError(f"{path} is no saved conversation: it is not JSON ({error})") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise GgpyError(f"{path} is no saved conversation: expected an object with \"format\": \"{FORMAT}\"")
    for name, kind in (("model", str), ("system", str), ("settings", dict), ("messages", list)):
        if not isinstance(content.get(name), kind):
            raise GgpyError(f"{path}: {name!r} is {content.get(name)!r:.40}, expected a {kind.__name__}")
    messages = content["messages"]
    for i, message in enumerate(messages):
        wanted = ROLES[i % 2]
        if not (isinstance(message, dict) and message.get("role") == wanted
                and isinstance(message.get("content"), str)):
            raise GgpyError(f"{path}: message {i + 1} is {message!r:.60}, expected \"role\": \"{wanted}\" and a text "
                            "as \"content\"")
    if len(messages) % 2:
        raise GgpyError(f"{path}: the last message has no answer")
    return Saved(model=content["model"], system=content["system"], settings=content["settings"],
                 messages=[{"role": message["role"], "content": message["content"]} for message in messages])
