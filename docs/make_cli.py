"""Writes docs/cli.md from the parsers that print `--help`: `python docs/make_cli.py`; with --check, only compares.

The text of `--help` itself differs between versions of Python and widths of terminals; this page does not.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from pathlib import Path

from writing import filled, write_or_check

from ggpy import cli, config
from ggpy.tools.parser import Parser

PAGE = Path(__file__).with_name("cli.md")
HEAD = """# Commands

What `ggpy COMMAND --help` says of every command. Written by `python docs/make_cli.py`: change the commands, not this
page.

`ggpy --version` prints the version. Exit codes are those of [getting-started.md](getting-started.md#what-goes-where).
"""


def page() -> str:
    """The whole page."""
    _, parsers = cli._parsers()
    sections = [HEAD]
    for name, parser in parsers.items():
        cli._load(name, parser)
        sections.append(_section(name, parser))
    variables = [_item(f"`{name}`", text) for name, text in config.VARIABLES.items()]
    return "\n".join([*sections, "## Environment variables\n", *variables, ""])


def _section(name: str, parser: Parser) -> str:
    lines = [f"## ggpy {name}\n", f"{parser.description}\n"]
    formatter = argparse.HelpFormatter(parser.prog)
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        if not actions:
            continue
        title = group.title if group in (parser._positionals, parser._optionals) else f"{group.title} flags"
        lines.append(f"### {name}: {title}\n")
        lines += [_item(_names(action), formatter._expand_help(action) if action.help else "") for action in actions]
        lines.append("")
    if parser.epilog:
        lines.append(f"```sh\n{textwrap.dedent(parser.epilog.partition(':')[2].lstrip(chr(10)))}\n```\n")
    return "\n".join(lines)


def _names(action: argparse.Action) -> str:
    """An argument's name, or a flag's spellings with what stands behind the last one."""
    value = action.metavar or ("{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest)
    if not action.option_strings:
        return f"`{value}`" + (" ..." if action.nargs in ("*", "+") else "")
    takes_value = action.nargs != 0
    *others, last = action.option_strings
    return ", ".join(f"`{spelling}`" for spelling in (*others, f"{last} {value}" if takes_value else last))


def _item(name: str, text: str) -> str:
    return filled(f"{name}: {text}", is_item=True)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page(), Path(__file__).name))
