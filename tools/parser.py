"""How the words of a command line become arguments: declared and described with argparse, read by llama.cpp's rules.

argparse would read "-mg 0" as "-m g" and a prompt, refuse "-p -x", and let prompts end where a flag stands between
words. Here a flag is one whole word, never abbreviated, "_" as good as "-" in a long one; its value is the next word,
whatever that looks like, or stands behind "=". All other words are the positional arguments, and so is every word
behind "--".
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from ggpy import config
from ggpy.errors import GgpyError

USAGE = 2                                           # exit code of a command that was called wrongly
KINDS: dict[Any, str] = {int: "a whole number", float: "a number"}      # what a type of argparse expects
FLAG = re.compile(r"--?[A-Za-z][^\s=]*(=|$)")       # "-5" and "- an item" are no flags
JOINED = re.compile(r"(-[A-Za-z])([\d.]+)")         # "-t4"
COMMON = ("help", "verbose")                        # flags that every command has
SHOWN = 160                                         # characters of a value in a message


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose `parse` reads a command line; errors are one line and exit code 2.

    Flags may take no value, one, or one that may be missing (nargs 0, None and "?").
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, formatter_class=HelpFormatter, **options)
        self.variables: Mapping[str, str] = {}      # flag -> what follows LLAMA_ARG_ in the variable with its default
        self._positionals.title = "arguments"
        self._optionals.title = "flags"
        self.add_argument("-h", "--help", action="help", help="show this text and exit")
        self.add_argument("--usage", action="help", help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        """End the process with a line about wrong usage."""
        self.exit(USAGE, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The arguments in `argv`, which is one of them, too; `flags` says how each flag that was given is spelled, by
        its dest."""
        namespace = argparse.Namespace(flags={}, argv=tuple(argv))
        words = deque(argv)
        positionals: list[str] = []
        while words:
            word = words.popleft()
            if word == "--":
                positionals += words
                break
            if FLAG.match(word):
                self._read_flag(word, words, namespace)
            else:
                positionals.append(word)
        self._refuse_exclusive(namespace)
        self._read_variables(namespace)
        _, rest = self.parse_known_args(["--", *positionals] if positionals else [], namespace)
        if rest:
            self.error(f"{shown(rest[-1])} is one word too many")
        return namespace

    def finish(self) -> None:
        """Call when all arguments are declared: makes the usage line and puts the flags that every command has last."""
        formatter = self._get_formatter()
        values = [formatter._format_args(action, action.dest) for action in self._get_positional_actions()]
        self.usage = " ".join([self.prog, "[FLAGS]", *values])
        self._action_groups.sort(key=lambda group: group is self._optionals)
        self._optionals._group_actions.sort(key=lambda action: action.dest in COMMON)

    def _read_flag(self, word: str, words: deque[str], namespace: argparse.Namespace) -> None:
        """Act on the flag in `word`; its value may be the next of `words`."""
        spelling, has_value, text = word.partition("=")
        if spelling.startswith("--"):
            spelling = spelling.replace("_", "-")
        action = self._option_string_actions.get(spelling)
        if action is None:
            self.error(self._unknown_flag(spelling))
        if action.nargs == 0 and has_value:
            self.error(f"{spelling} takes no value")
        value: Any = []
        if has_value or self._takes_next(action, words):
            text = text if has_value else words.popleft()
            value = self._value(action, f"{spelling} {shown(text)}", text)
        elif action.nargs is None:
            self.error(f"{spelling} needs a value: {action.metavar or action.dest.upper()}")
        elif action.nargs == "?":
            value = action.const
        action(self, namespace, value, spelling)
        namespace.flags[action.dest] = spelling

    @staticmethod
    def _takes_next(action: argparse.Action, words: deque[str]) -> bool:
        """Whether the next word is the action's value; one that may be missing must be among the choices."""
        assert action.nargs in (0, None, "?"), f"{action.option_strings}: nargs={action.nargs!r}"
        if not words or action.nargs == 0:
            return False
        return action.nargs is None or words[0] in (action.choices or ())

    def _value(self, action: argparse.Action, where: str, text: str) -> Any:
        """`text` as a value of `action`; `where` names flag and value in the message if it is none."""
        try:
            value = action.type(text) if callable(action.type) else text
        except (argparse.ArgumentTypeError, GgpyError) as error:
            self.error(f"{where}: {error}")
        except ValueError:
            self.error(f"{where}: expected {KINDS.get(action.type, action.metavar)}")
        if action.choices is not None and value not in action.choices:
            self.error(f"{where}: expected one of {', '.join(map(str, action.choices))}")
        return value

    def _unknown_flag(self, spelling: str) -> str:
        joined = JOINED.fullmatch(spelling)
        if joined is not None and joined[1] in self._option_string_actions:
            return f"{spelling}: a flag and its value are two words, {joined[1]} {joined[2]}"
        return f"there is no flag {spelling}" + did_you_mean(self._near_flags(spelling))

    def _near_flags(self, spelling: str) -> list[str]:
        """The flags that the help shows and that go on as `spelling` does, or else are close to it; three at most.

        Flags that are called otherwise than in the library go by their name there, too: --max-tokens is near to -n.
        """
        known: dict[str, str] = {}
        for option, action in self._option_string_actions.items():
            if action.help != argparse.SUPPRESS:
                known.setdefault(action.dest.replace("_", "-"), max(action.option_strings, key=len))
                known[option.lstrip("-")] = option
        wanted = spelling.lstrip("-").lower()
        near = [name for name in known if name.startswith(f"{wanted}-")] or difflib.get_close_matches(
            wanted, known, n=3, cutoff=0.7)
        actions = {id(self._option_string_actions[known[name]]): known[name] for name in reversed(near)}
        return list(reversed(actions.values()))[:3]

    def _refuse_exclusive(self, namespace: argparse.Namespace) -> None:
        for group in self._mutually_exclusive_groups:
            given = [namespace.flags[action.dest] for action in group._group_actions if action.dest in namespace.flags]
            if len(given) > 1:
                self.error(f"{given[0]} and {given[1]} exclude each other")

    def _read_variables(self, namespace: argparse.Namespace) -> None:
        """Give flags that were not given the values that llama.cpp's environment variables have for them."""
        for flag, name in self.variables.items():
            action = self._option_string_actions[flag]
            if action.dest in namespace:
                continue
            text = config.llama_arg(name)
            if action.nargs == 0:
                value: Any = config.llama_flag(name)
            elif text is not None:
                value = self._value(action, f"LLAMA_ARG_{name}={shown(text)}", text)
            else:
                continue
            if value is not None:
                setattr(namespace, action.dest, value)


def did_you_mean(near: Sequence[str]) -> str:
    """The end of a message about something unknown; empty where nothing is near."""
    return f" (did you mean {' or '.join(near)}?)" if near else ""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Writes a flag's value once, behind its last spelling, and keeps the lines of descriptions and epilogs."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"max_help_position": 28, **options})

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):      # argparse forgets that commands are indented further
            self._action_max_length += self._indent_increment

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


def shown(text: str) -> str:
    """A value as a message repeats it: short, on one line, and visible when it is empty."""
    cut = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    return cut if cut and cut.isprintable() else repr(cut)
