"""Reads the arguments of calls as models write them: as much of them as there is."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import msgspec


def read_arguments(text: str) -> dict[str, Any]:
    """The object in `text`; {} if it broke off, or is none. Numbers that are out of range are the largest ones."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.ValidationError:         # a number is out of range
        found = _clamped(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _clamped(text: str) -> Any:
    try:
        return json.loads(text, parse_float=_number, parse_int=_number)
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> float | int:
    """Whole where it is written so, and not larger than others can read."""
    number = float(text)
    if math.isinf(number):
        return math.copysign(sys.float_info.max, number)
    return number if set(text) & set(".eE") else int(text)
