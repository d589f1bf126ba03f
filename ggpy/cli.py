"""The `ggpy` command: one table of sub-commands, each imported only when it is chosen.

A command's module offers `add_arguments(parser)` and `main(args) -> int`. Exit codes: 0 done, 1 failed, 2 wrong usage,
130 interrupted, 141 the reader of a pipe went away.
"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import sys
import textwrap
import traceback
from collections.abc import Sequence
from importlib import metadata
from types import ModuleType
from typing import NamedTuple

from ggpy import config
from ggpy.errors import ConfigError, GgpyError
from ggpy.tools.parser import USAGE, Parser


class Command(NamedTuple):
    """A sub-command: the module that implements it and its line in `ggpy --help`."""

    module: str
    help: str


COMMANDS = {
    "run": Command("ggpy.tools.run", "chat with a model, or answer one prompt"),
    "serve": Command("ggpy.server.command", "serve models by HTTP, as llama-server does"),
    "pull": Command("ggpy.tools.pull", "download a model by name"),
    "list": Command("ggpy.tools.list", "list the models that have a name, and which are here"),
    "show": Command("ggpy.tools.show", "describe a model: architecture, quantisation, sizes"),
    "rm": Command("ggpy.tools.rm", "delete a downloaded model"),
    "embed": Command("ggpy.tools.embed", "make vectors of texts, or rank them by a query"),
    "bench": Command("ggpy.tools.bench", "measure the speed of models, as llama-bench does"),
    "bench serve": Command("ggpy.tools.bench_serve", "measure latency and throughput of many requests"),
    "top": Command("ggpy.tools.top", "watch what a server does"),
    "trace": Command("ggpy.tools.trace", "show where the time of a model's steps goes"),
    "warm": Command("ggpy.tools.warm", "compile the kernels of a model ahead of time"),
    "doctor": Command("ggpy.tools.doctor", "look at this machine and installation, and say what to do"),
}

FAILED, INTERRUPTED, BROKEN_PIPE = 1, 130, 141
SYNONYMS = {"chat": "run", "download": "pull", "ls": "list", "info": "show", "delete": "rm", "remove": "rm",
            "server": "serve"}
HELP_WIDTH = 79     # characters
EXAMPLES = """examples:
  ggpy run smollm2                      chat
  ggpy run smollm2 "Why is it dark?"    one answer
  ggpy run model.gguf < question.txt    a file, and what is piped in
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run `ggpy` with `argv` (the process's own arguments by default); returns the exit code.

    Raises SystemExit as argparse does: 0 after --help and --version, 2 for wrong usage.
    """
    argv = _help_as_flag(sys.argv[1:] if argv is None else list(argv))
    start = next((i for i, word in enumerate(argv) if not word.startswith("-")), len(argv))
    verbose, prog = False, "ggpy"
    try:
        _check_streams()
        parser, subparsers = _parsers()
        parser.parse(argv[:start])              # what stands before the command; --help and --version end here
        if start == len(argv):
            parser.print_help(sys.stderr)
            return USAGE
        n_words = 2 if " ".join(argv[start : start + 2]) in COMMANDS else 1
        name = " ".join(argv[start : start + n_words])
        if name not in COMMANDS:
            parser.error(_unknown_command(name))
        prog = subparsers[name].prog
        module = _load(name, subparsers[name])
        args = subparsers[name].parse(argv[start + n_words :])
        verbose = args.verbose
        _start_logging(verbose)
        code: int = module.main(args)
        sys.stdout.flush()      # here, so that a closed pipe is noticed while it can still be handled
        return code
    except GgpyError as error:
        return _fail(error, prog, verbose)
    except BrokenPipeError:
        # stdout is pointed elsewhere, or the interpreter would complain when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        return _fail(error, prog, verbose)
    except KeyboardInterrupt:
        return _interrupted()


def _check_streams() -> None:
    """Make the standard streams usable; Python has None for one that was closed when the process began.

    Raises GgpyError if results could go nowhere.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)            # noqa: SIM115 (kept for as long as the process lives)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")      # noqa: SIM115
    if sys.stdout is None:
        raise GgpyError(f"stdout is closed; send it to a file or a program, or to {os.devnull}")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")    # a model may say what the terminal's encoding lacks


def _help_as_flag(argv: list[str]) -> list[str]:
    """`argv` with "help COMMAND" as "COMMAND --help"."""
    return [*argv[1:3], "--help"] if argv[:1] == ["help"] else argv


def _parsers() -> tuple[Parser, dict[str, Parser]]:
    """The top parser and those of the sub-commands, which know their arguments only once `_load` has run."""
    variables = (textwrap.fill(f"  {name:<20}  {text}", HELP_WIDTH, subsequent_indent=" " * 24)
                 for name, text in config.VARIABLES.items() if name not in config.RARE)
    parser = Parser(prog="ggpy", usage="ggpy COMMAND ...", description="Run GGUF models on this machine.",
                    epilog="\n".join([EXAMPLES, "environment variables:", *variables]))
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="print the version and exit")
    group = parser.add_subparsers(title="commands, each with a --help of its own", metavar="COMMAND",
                                  prog="ggpy")
    subparsers = {
        name: group.add_parser(name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}.")
        for name, command in COMMANDS.items()
    }
    for subparser in subparsers.values():
        subparser.add_argument("-v", "--verbose", action="store_true",
                               help="log details; show where an error came from")
    return parser, subparsers


class _PrintVersion(argparse.Action):
    """Looks the version up only when it is asked for: reading the metadata takes longer than the rest of `--help`."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"ggpy {metadata.version('ggpy')}")
        parser.exit()


def _load(name: str, parser: Parser) -> ModuleType:
    """Import the module of command `name` and let it add its arguments to `parser`."""
    path = COMMANDS[name].module
    try:
        module = importlib.import_module(path)
    except ModuleNotFoundError as error:
        if error.name != path:
            raise
        message = f"`ggpy {name}` is not part of this installation ({path} is missing); reinstall ggpy"
        raise GgpyError(message) from error
    module.add_arguments(parser)
    parser.finish()
    return module


def _unknown_command(name: str) -> str:
    import difflib

    from ggpy.tools.inputs import is_model

    close = [f"run {name}"] if is_model(name) else difflib.get_close_matches(name, COMMANDS, n=1)
    close = [SYNONYMS[name]] if name in SYNONYMS else close
    return f"there is no command {name!r}" + (f" (did you mean `ggpy {close[0]}`?)" if close else "")


def _start_logging(verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger = logging.getLogger("ggpy")
    logger.handlers = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)


def _interrupted() -> int:
    """Say so, undisturbed by further Ctrl-Cs, on a line of its own: the terminal may have shown the keys, "^C"."""
    from ggpy.tools.keyboard import ctrl_c_calls

    with ctrl_c_calls(lambda: None):
        print("\n" if sys.stderr.isatty() else "", "ggpy: interrupted", sep="", file=sys.stderr)
    return INTERRUPTED


def _fail(error: Exception, prog: str, verbose: bool) -> int:
    if verbose:
        traceback.print_exception(error)
    text = f"{error.filename}: {error.strerror}" if isinstance(error, OSError) and error.filename else error
    print(f"{prog}: {text}", file=sys.stderr)
    return USAGE if isinstance(error, ConfigError) else FAILED
