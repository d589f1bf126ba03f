"""What a command is given to read: texts and files on the command line, and what is piped in."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ggpy.errors import PullError
from ggpy.hub import catalogue, names
from ggpy.hub.resolve import made_model

PATIENCE_S = 1.0        # so long a pipe may be silent before a person is told what is waited for


def file_text(file: str) -> str:
    """The text in `file`; an error for argparse if there is none."""
    try:
        return Path(file).read_bytes().decode()
    except UnicodeDecodeError as error:
        raise argparse.ArgumentTypeError(f"byte {error.start:,} is not UTF-8 text; is this the right file?") from error
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{error.strerror or error}") from error


def file_lines(file: str) -> str:
    """As `file_text`, but lines end as they do in Python, and the newline at the end, which editors add, is gone."""
    return file_text(file).replace("\r\n", "\n").removesuffix("\n")


def json_object(text: str) -> dict[str, Any]:
    """The object that a JSON text holds; an error for argparse otherwise."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"this is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("expected a JSON object")
    return value


def chat_template(text: str) -> str:
    """The Jinja source that a built-in name or a source itself means; an error for argparse if it does not compile."""
    from ggpy.text import ChatTemplate
    from ggpy.text.builtin_templates import BUILTIN_TEMPLATES, jinja_source

    source = jinja_source(text)
    if source is None:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(BUILTIN_TEMPLATES)}, or a Jinja template; "
                                         "--chat-template-file reads one from a file")
    ChatTemplate(source, key="the template")
    return source


def chat_template_file(file: str) -> str:
    """The Jinja source in `file`; an error for argparse if there is none that compiles."""
    from ggpy.text import ChatTemplate

    source = file_lines(file)
    ChatTemplate(source, key="the template")
    return source


def output_file(file: str) -> str:
    """The name of a file that can be written, which stays as it is; an error for argparse otherwise."""
    path = Path(file)
    if path.is_dir():
        raise argparse.ArgumentTypeError("this is a folder; expected a file")
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return file


def affix_template(prefix: str, suffix: str, *, starts_with_bos: bool) -> str:
    """A chat template that puts two texts around each message of the user, and nothing else anywhere."""
    bos = "bos_token + " if starts_with_bos else ""
    before, behind = (json.dumps(text, ensure_ascii=False) for text in (prefix, suffix))    # Jinja knows no pairs
    question = f"{{{{ {bos}{before} + message.content + {behind} }}}}"
    return ("{% for message in messages %}{% if message.role == 'user' %}" + question
            + "{% else %}{{ message.content }}{% endif %}{% endfor %}")


def is_model(word: str) -> bool:
    """Whether a word looks like a model: by its form, or because there is one of that name."""
    has_form = word.lower().endswith(".gguf") or names.is_hub_name(word)
    return " " not in word and (has_form or catalogue.find(word) is not None or made_model(word) is not None)


def hub_model(text: str) -> str:
    """A model of Hugging Face, with or without hf: in front, as a MODEL; an error for argparse if it is none."""
    name = names.hub_name(text)
    try:
        names.parse(name)
    except PullError as error:
        raise argparse.ArgumentTypeError("expected user/repo or user/repo:QUANT") from error
    return name


def read_pipe() -> str:
    """What a pipe or file on stdin holds; empty if stdin is a terminal, closed or /dev/null."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    with contextlib.suppress(OSError):      # no file descriptor behind it
        if stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
            return ""
    with _said_when_slow("ggpy: reading stdin, whose text is put behind the prompt, until it ends; "
                         "without it: ggpy run ... < /dev/null"):
        return sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")


@contextlib.contextmanager
def _said_when_slow(message: str) -> Iterator[None]:
    """Print `message` on stderr if what is done meanwhile takes longer than a person is ready to wait for."""
    timer = threading.Timer(PATIENCE_S, print, [message], {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
