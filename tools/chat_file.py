"""Conversations in files."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypedDict

from ggpy.errors import GgpyError

FORMAT = "ggpy conversation 1"
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
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with open(handle, "w", encoding="utf-8", errors="surrogatepass") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise GgpyError(f"{path} cannot be written: {error.strerror or error}") from error


def load(path: Path) -> Saved:
    """Read what `save` wrote. Raises GgpyError that says what is wrong with the file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise GgpyError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise GgpyError(f"{path} is no saved conversation: it is not text in UTF-8") from error
    except (json.JSONDecodeError, RecursionError) as error:
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
