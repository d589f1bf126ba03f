"""The commands of a conversation, each a line that begins with a slash."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ggpy.errors import GgpyError
from ggpy.tools import chat_file, chat_settings

if TYPE_CHECKING:
    from ggpy.tools.chat_session import Session


class Leave(Exception):     # noqa: N818  (no error)
    """The user wants to end the conversation."""


class Command(NamedTuple):
    """What a command takes and does; `run` is given what stands behind its name."""

    argument: str
    help: str
    run: Callable[[Session, str], None]


def is_command(message: str) -> bool:
    """Whether a message is meant as a command: "/helo" is, "/etc/hosts" and what has several lines are not."""
    return re.fullmatch(r"/[a-z?]*( .*)?", message) is not None


def run(session: Session, line: str) -> None:
    """Do what a line that `is_command` says. Raises GgpyError where it cannot be done, Leave at the end."""
    name, _, argument = line.partition(" ")
    name = ALIASES.get(name, name)
    if name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        raise GgpyError(f"there is no {name}; " + (f"did you mean {near[0]}?" if near else "/help lists the commands"))
    COMMANDS[name].run(session, argument.strip())


def completions(line: str) -> Iterator[tuple[str, str]]:
    """What the last word of a command may become, and what that means."""
    name, space, argument = line.partition(" ")
    if not space:
        yield from ((known, command.help) for known, command in COMMANDS.items() if known.startswith(name))
    elif name in ("/save", "/load"):
        yield from ((path, "") for path in _paths(argument))
    elif " " not in argument:
        words = {"/show": SHOWN, "/set": chat_settings.names() | MARKDOWN}.get(name, {})
        yield from ((word, meaning) for word, meaning in words.items() if word.startswith(argument))


def _paths(start: str) -> Iterator[str]:
    folder, name = os.path.split(start)
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(name) and (name or not entry.name.startswith(".")):
            yield os.path.join(folder, entry.name) + (os.sep if entry.is_dir() else "")


def _help(session: Session, argument: str) -> None:
    session.say_rows({f"{name} {command.argument}".rstrip(): command.help for name, command in COMMANDS.items()})
    new_line = "Alt-Enter, or \\ at the end of a line," if session.has_editing else "\\ at the end of a line"
    session.say(f"{new_line} begins a new line; ''' or \"\"\" around a message holds many.\n"
                "Ctrl-C stops an answer, Ctrl-D leaves.")


def _clear(session: Session, argument: str) -> None:
    session.chat.clear()
    session.say("forgot the conversation" + ("; the system prompt stays" if session.chat.system else ""))


def _system(session: Session, text: str) -> None:
    if session.chat.template is None:
        raise GgpyError("no chat template is in use, so that a system prompt has no place; write it into the message")
    session.chat.instruct(text)
    session.say("the system prompt is set; it counts from the next message on" if text else "no system prompt any more")


def _regen(session: Session, argument: str) -> None:
    if session.chat.unanswered is not None:
        session.answer(session.chat.unanswered)
        return
    before = list(session.chat.messages)
    question = session.chat.undo()
    try:
        session.answer(question, without_answer="the earlier answer stays")
    finally:
        if len(session.chat.messages) < len(before):        # it failed, or was stopped before its first word
            session.chat.replace(before, session.chat.system)


def _undo(session: Session, argument: str) -> None:
    question = " ".join(session.chat.undo().split())
    session.say(f"took back: {question if len(question) <= 60 else question[:57] + '...'}")


def _path(argument: str, command: str) -> Path:
    if not argument:
        raise GgpyError(f"{command} needs the name of a FILE")
    return Path(os.path.expanduser(argument))       # Path.expanduser would raise for the home of an unknown user


def _save(session: Session, argument: str) -> None:
    path = _path(argument, "/save")
    chat_file.save(path, chat_file.Saved(
        model=session.model_name, system=session.chat.system, settings=session.settings.changed,
        messages=session.chat.messages))
    session.say(f"saved {len(session.chat.messages)} messages in {path}")


def _load(session: Session, argument: str) -> None:
    saved = chat_file.load(_path(argument, "/load"))
    settings = session.settings.replaced(saved["settings"])
    session.chat.replace(saved["messages"], saved["system"])
    session.settings, session.chat.params = settings, settings.params
    other = "" if saved["model"] == session.model_name else f"; it was held with {saved['model']}"
    session.say(f"loaded {len(saved['messages'])} messages{other}")
    if session.chat.n_used >= session.llm.n_ctx:
        session.say(session.full_hint())


def _set(session: Session, argument: str) -> None:
    name, value = ASSIGNMENT.fullmatch(argument).groups()       # type: ignore[union-attr]   # it takes every line
    if name in HABITS:
        raise GgpyError(f"there is no setting {name!r}; {HABITS[name]}")
    if name == "markdown":
        session.show_markdown(value)
    elif name:
        session.settings = session.settings.with_value(name, value)
        session.chat.params = session.settings.params
    markdown = {"markdown": "on" if session.is_markdown else "off"} if name in ("", "markdown") else {}
    session.say_rows(markdown | (session.settings.describe(name) if name != "markdown" else {}))


def _show(session: Session, argument: str) -> None:
    match argument or "info":
        case "info":
            session.say_rows(session.describe_model())
        case "template":
            session.say(session.chat.template.source if session.chat.template else "there is no chat template in use")
        case "system":
            session.say(session.chat.system or "none of yours" + (
                "; the template may write its own" if session.chat.template else ""))
        case "params" | "parameters":
            session.say_rows(session.settings.describe())
        case "modelfile":
            raise GgpyError("there is no Modelfile; /show template, system and params have what it would")
        case other:
            raise GgpyError(f"/show {other}: expected one of {', '.join(SHOWN)}")


def _stats(session: Session, argument: str) -> None:
    session.say_rows(session.describe_stats())


def _bye(session: Session, argument: str) -> None:
    raise Leave


SHOWN = {"info": "the model", "template": "its chat template", "system": "the system prompt",
         "params": "how tokens are chosen"}
MARKDOWN = {"markdown": "on or off: answers are formatted, or the model's own text"}
# a name and a value, with blanks or = between them; "parameter" in front as ollama has it
ASSIGNMENT = re.compile(r"(?:parameter\s+)?([^\s=]*)(?:\s*=\s*(?=\S)|\s+|$)(.*)", re.DOTALL)
HABITS = {"system": "/system TEXT sets the system prompt", "num_ctx": "-c N at the start sets the context",
          "num_predict": "max_tokens is what you mean", "verbose": "/stats tells the speed",
          "parameter": "/set temp 0.5 sets one; /set lists them"}      # ollama's names
ALIASES = {"/?": "/help", "/exit": "/bye", "/quit": "/bye"}
COMMANDS = {
    "/help": Command("", "list the commands", _help),
    "/clear": Command("", "forget the conversation", _clear),
    "/system": Command("TEXT", "give instructions in front of it; without TEXT: none", _system),
    "/regen": Command("", "answer the last message again", _regen),
    "/undo": Command("", "take back the last message and its answer", _undo),
    "/save": Command("FILE", "write the conversation to a file", _save),
    "/load": Command("FILE", "go on with a conversation from a file", _load),
    "/set": Command("KEY VALUE", "change how tokens are chosen, such as /set temp 0.5; /set markdown off: raw text",
                    _set),
    "/show": Command("WHAT", "show what is in use: info, template, system or params", _show),
    "/stats": Command("", "tokens, speed and context", _stats),
    "/bye": Command("", "end the conversation", _bye),
}
