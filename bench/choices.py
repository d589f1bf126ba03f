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


def counts(text: str) -> list[int]:
    """Reads numbers from 1 on, separated by commas."""
    parts = text.split(",")
    if wrong := [part for part in parts if not part.strip().isascii() or not part.strip().isdigit() or int(part) < 1]:
        raise argparse.ArgumentTypeError(f"{wrong[0]!r}: expected numbers from 1 on, separated by commas")
    return [int(part) for part in parts]
