"""Ollama's environment variables, which count with --ollama where no flag says otherwise."""

from __future__ import annotations

import ipaddress
import math
import re

from ggpy import config
from ggpy.errors import ConfigError, RequestError
from ggpy.server.options.durations import parse_duration
from ggpy.server.settings import OLLAMA_IDLE_S, OLLAMA_PORT
from ggpy.server.web.origins import LOCAL

USUAL_PORTS = {"http": 80, "https": 443}        # where a scheme is written, and no port


def address() -> tuple[str, int]:
    """Where to listen by OLLAMA_HOST: `host`, `host:port`, `:port`, or one of these behind a scheme.

    Without a host it is this machine alone. Raises ConfigError.
    """
    text = config.ollama_variable("HOST") or ""
    scheme, _, rest = text.rpartition("://")
    rest, port = rest.partition("/")[0], str(USUAL_PORTS.get(scheme, OLLAMA_PORT))
    if not _is_address(rest.strip("[]")) and ":" in rest:
        rest, _, port = rest.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"OLLAMA_HOST={text}: expected host:port, with a port from 0 to 65535")
    return rest.strip("[]") or "127.0.0.1", int(port)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def origins() -> str:
    """The rule of --cors-origins: what OLLAMA_ORIGINS lists, and pages of this machine."""
    return ",".join(filter(None, (config.ollama_variable("ORIGINS"), LOCAL)))


def keep_s() -> float | None:
    """After how many seconds without requests a model goes by OLLAMA_KEEP_ALIVE, a duration or seconds; None: never.

    Raises ConfigError.
    """
    text = config.ollama_variable("KEEP_ALIVE")
    if text is None:
        return OLLAMA_IDLE_S
    if re.fullmatch(r"-?\d{1,18}", text, re.ASCII):
        seconds = float(text)
    else:
        try:
            seconds = parse_duration(text)
        except RequestError as error:
            raise ConfigError(f"OLLAMA_KEEP_ALIVE={text}: expected seconds, or a duration such as 5m") from error
    return seconds if 0 <= seconds < math.inf else None


def n_ctx() -> int | None:
    """Tokens that a request may have by OLLAMA_CONTEXT_LENGTH; None: as the model has it. Raises ConfigError."""
    text = config.ollama_variable("CONTEXT_LENGTH")
    if text is None:
        return None
    if not text.isdecimal() or int(text) == 1 or int(text) >= 2**31:
        raise ConfigError(f"OLLAMA_CONTEXT_LENGTH={text}: expected a number of tokens, 2 or more, or 0")
    return int(text) or None
