"""Models that an INI file describes, as llama-server has it: a section for each, with flags for keys.

`[*]` is for all of them. The command line counts first, then a model's section, then `[*]`.
"""

from __future__ import annotations

import configparser
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ggpy.errors import ConfigError

ALL = "*"
OWN_KEYS = ("load-on-startup", "stop-timeout", "dedup-cache-models")      # that are no flags
TRUE = frozenset({"1", "true", "yes", "on", "enabled"})
FALSE = frozenset({"0", "false", "no", "off", "disabled"})


@dataclass(frozen=True, slots=True)
class Preset:
    """One section."""

    name: str
    argv: tuple[str, ...]           # the command line that it means
    loads_on_startup: bool
    hides_cached: bool              # the models of the cache that it uses are not listed beside it


def read_presets(path: Path, argv: Sequence[str], variables: Mapping[str, str],
                 switches: frozenset[str]) -> list[Preset]:
    """The sections of the file. Raises ConfigError.

    `argv` are the flags of the server's own command line, `variables` the names of flags' environment variables without
    LLAMA_ARG_, `switches` the flags that take no value.
    """
    parser = configparser.ConfigParser(interpolation=None, default_section="", delimiters=("=",), strict=False)
    parser.optionxform = str        # type: ignore[assignment, method-assign]
    try:
        parser.read_string(path.read_text("utf-8"))
    except (OSError, ValueError, configparser.Error) as error:
        raise ConfigError(f"--models-preset {path}: {str(error).splitlines()[0]}") from error
    flag_of = {f"LLAMA_ARG_{name}": flag for flag, name in variables.items()}
    common = dict(parser[ALL]) if parser.has_section(ALL) else {}
    presets = []
    for name in parser.sections():
        if name != ALL:
            values = {**common, **parser[name]}
            flags = [word for key, text in values.items() if key not in OWN_KEYS
                     for word in words(flag_of.get(key, key), text, switches)]
            presets.append(Preset(name, (*flags, *argv), is_true(values.get("load-on-startup", "")),
                                  is_true(values.get("dedup-cache-models", ""))))
    return presets


def words(key: str, text: str, switches: frozenset[str]) -> Iterator[str]:
    """What a key and its value are on a command line; nothing for a switch that is off and has no opposite."""
    name = key.strip().lstrip("-").replace("_", "-")
    flag = f"-{name}" if f"-{name}" in switches or len(name) <= 2 else f"--{name}"
    if flag not in switches:
        yield from (flag, text)
    elif text.strip().lower() not in FALSE:
        yield flag
    elif f"--no-{name}" in switches:
        yield f"--no-{name}"


def is_true(text: str) -> bool:
    return text.strip().lower() in TRUE
