"""The breakdown of a start: it watches functions by name, so it must know where they are."""

import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))      # bench is no part of an installed ggpy

from bench.start import PARTS, measure
from tests.models.arch_data import ArchModel


def test_every_part_of_a_start_takes_time(arch_model: Callable[[str], ArchModel]) -> None:
    """None is missed, and so counted elsewhere."""
    parts = measure(arch_model("llama").path, 1)
    assert set(parts) == set(PARTS)
    assert min(parts.values()) > 0
