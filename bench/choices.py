"""Flags of the scripts beside this file that take some of what there is."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence


def some_of(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Reads names, separated by commas, that are all `known`."""

    def read(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r}: expected some of {', '.join(known)}")
        return names

    return read
