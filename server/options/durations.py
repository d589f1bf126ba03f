"""Durations as Go writes them, such as "1h30m"."""

from __future__ import annotations

import math
import re

from ggpy.errors import RequestError, shown

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+", re.ASCII)
_PIECE = re.compile(r"([\d.]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)


def parse_duration(text: str) -> float:
    """Seconds of a duration as Go writes it, such as "1h30m"; inf for a negative one. Raises RequestError."""
    if text in ("0", "+0", "-0"):
        return 0.0
    if re.fullmatch(r"-\d+", text):
        return math.inf
    if len(text) > 64 or not _DURATION.fullmatch(text):
        what = "missing unit in duration" if re.fullmatch(r"[\d.]+", text) else "invalid duration"
        raise RequestError(f'time: {what} {shown(text)}; expected a number of seconds, or a duration such as "5m"')
    seconds = sum(float(number) * UNITS[unit] for number, unit in _PIECE.findall(text))
    return math.inf if text.startswith("-") else seconds
